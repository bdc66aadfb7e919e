//! Who may have how much: each client its own rate, connections, calls and bytes, whatever the others do.
//!
//! A client's state is found once, when it connects ([`Table::join`]); the connection holds it as an [`Admitted`], and a call costs a few
//! atomic operations on cache lines that no other client writes. There is no lock and no look-up on that way. Time comes in as an
//! argument.
//!
//! Never here: a socket, a request, a reply. How a refusal is said is [`crate::serve`]'s business; what waits for the kubelet is put in
//! order by [`Fair`] in [`crate::refresh`].

mod admitted;
mod atomic;
mod bucket;
mod classes;
mod fair;
mod flood;
mod refused;
mod rules;
mod state;
mod table;
mod tally;

#[cfg(test)]
mod tests;

pub use admitted::{Admitted, Call};
pub use bucket::{Bucket, Pace};
pub use classes::Classes;
pub(crate) use fair::Fair;
pub use refused::{Reason, Refused};
pub use rules::{Limits, Rules};
pub use table::{Classify, Config, Mode, Seen, Table};
