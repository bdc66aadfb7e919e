//! The module as a whole, on recorded replies, on generated ones and on broken bytes.

mod cases;
mod generate;
mod merging;
mod properties;
