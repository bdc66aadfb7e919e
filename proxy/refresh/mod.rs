//! Decides what is captured when, and publishes it.

mod budget;
mod schedule;
