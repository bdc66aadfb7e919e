//! What was seen, as lines for people and for Markdown.

use std::time::Duration;

use crate::cases::Case;
use crate::run::Outcome;

/// The table's head.
pub(crate) const HEAD: &str = "\
| abuse | honest calls | errors | median, ms | p99, ms | p99 alone, ms | memory, MiB | after, MiB | CPU, % | kubelet calls | budget |
|---|---|---|---|---|---|---|---|---|---|---|";

/// A case's line.
pub(crate) fn line(case: &Case, seen: &Outcome, alone: Option<&Outcome>) -> String {
    let alone = alone.map_or_else(|| "-".to_owned(), |alone| millis(alone.p99));
    format!(
        "| {} | {} | {} | {} | {} | {alone} | {} | {} | {:.0} | {} | {} |",
        case.name,
        seen.calls,
        seen.errors.len(),
        millis(seen.median),
        millis(seen.p99),
        seen.memory >> 20,
        seen.memory_after >> 20,
        seen.cpu * 100.0,
        seen.upstream,
        seen.budget,
    )
}

fn millis(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1_000.0)
}
