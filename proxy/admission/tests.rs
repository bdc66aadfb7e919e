//! What admission promises, on a virtual clock.

mod buckets;
mod clients;
mod order;
