//! What the change sources say of themselves: one log line, a metric for each part, readiness notes, `/status`.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;

use crate::admin::Readiness;
use crate::admin::metrics::{Collector, counters, gauges};
use crate::admin::status::{ChangePart, ChangeSource};
use crate::change::{PartReport, Report, Sources, State};

/// Families of the change sources.
#[derive(Debug)]
pub(super) struct Changes(pub(super) Sources);

impl Collector for Changes {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (e, reports) = (&mut encoder, self.0.report());
        let parts = || reports.iter().flat_map(|report| report.parts.iter().map(move |part| (report.name, part)));
        let labels = |source: &'static str, part: &PartReport| [("source", source.to_owned()), ("part", part.name.clone())];
        let states = parts().flat_map(|(source, part)| {
            State::NAMES.map(|state| {
                let [source, name] = labels(source, part);
                ([source, name, ("state", state.to_owned())], u64::from(part.state.name() == state))
            })
        });
        gauges(e, "change_source", "1 for the state in which a part of a change source is", states)?;
        let events = parts().map(|(source, part)| (labels(source, part), part.events));
        counters(e, "change_events", "Events of a change source that counted", events)?;
        let losses = parts().map(|(source, part)| (labels(source, part), part.losses));
        counters(
            e,
            "change_losses",
            "How often a part of a change source was lost: overflow, limit, directory or stream gone",
            losses,
        )
    }
}

/// Says once what tells of changes, what does not, and what to grant so that it would.
pub(super) fn announce(sources: &Sources, readiness: &Readiness) {
    let reports = sources.report();
    let lines: Vec<String> = reports.iter().map(|report| format!("{}: {}", report.name, detail(report))).collect();
    tracing::info!("changes are told by {}", lines.join("; "));
    for (source, part) in reports.iter().flat_map(|report| report.parts.iter().map(|part| (report.name, part))) {
        if let State::Refused { why, grant } = &part.state {
            let grant = if grant.is_empty() { String::new() } else { format!("; {grant}") };
            readiness.note(format!("change source {source} ({}) is refused: {why}{grant}", part.name));
        }
    }
}

/// As `/status` has it. `interval`: how often the timer captures.
pub(super) fn status(sources: &Sources, interval: &str) -> Vec<ChangeSource> {
    let source = |report: Report| {
        let detail = if report.name == "timer" { format!("every {interval}") } else { detail(&report) };
        let parts = report.parts.iter().map(|part| ChangePart {
            name: part.name.clone(),
            state: part.state.name().to_owned(),
            reason: reason(&part.state),
            events: part.events,
            losses: part.losses,
        });
        ChangeSource { name: report.name.to_owned(), state: state(&report).to_owned(), detail, parts: parts.collect() }
    };
    sources.report().into_iter().map(source).collect()
}

/// `active` where all works, `degraded` where some does or was lost, `refused` and `off` where nothing does.
fn state(report: &Report) -> &'static str {
    let is = |wanted: fn(&State) -> bool| report.parts.iter().filter(|part| wanted(&part.state)).count();
    match (is(|state| *state == State::Attached), is(|state| matches!(state, State::Lost { .. }))) {
        (attached, _) if attached == report.parts.len() => "active",
        (0, 0) if is(|state| matches!(state, State::Refused { .. })) > 0 => "refused",
        (0, 0) => "off",
        _ => "degraded",
    }
}

/// The parts by state: what works by name alone, the rest with its reason.
fn detail(report: &Report) -> String {
    let attached: Vec<&str> =
        report.parts.iter().filter(|part| part.state == State::Attached).map(|part| part.name.as_str()).collect();
    let attached = (!attached.is_empty()).then(|| format!("{} attached", attached.join(", ")));
    let others =
        report.parts.iter().filter(|part| part.state != State::Attached).map(|part| format!("{} {}", part.name, part.state));
    attached.into_iter().chain(others).collect::<Vec<_>>().join(", ")
}

fn reason(state: &State) -> Option<String> {
    match state {
        State::Attached => None,
        State::Refused { why, grant } if grant.is_empty() => Some(why.clone()),
        State::Refused { why, grant } => Some(format!("{why}; {grant}")),
        State::Absent { why } | State::Lost { why } => Some(why.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(states: &[State]) -> Report {
        let part = |(at, state): (usize, &State)| PartReport { name: format!("p{at}"), state: state.clone(), events: 0, losses: 0 };
        Report { name: "kubepods", parts: states.iter().enumerate().map(part).collect() }
    }

    fn refused() -> State {
        State::Refused { why: "EPERM".to_owned(), grant: "grant CAP_BPF".to_owned() }
    }

    fn lost() -> State {
        State::Lost { why: "gone".to_owned() }
    }

    fn absent() -> State {
        State::Absent { why: "no BTF".to_owned() }
    }

    #[test]
    fn a_source_is_what_its_parts_are() {
        for (states, word) in [
            (vec![State::Attached, State::Attached], "active"),
            (vec![State::Attached, refused()], "degraded"),
            (vec![refused(), absent()], "refused"),
            (vec![absent()], "off"),
            (vec![lost()], "degraded"),
        ] {
            assert_eq!(state(&report(&states)), word, "{states:?}");
        }
    }

    #[test]
    fn what_does_not_work_is_told_with_its_reason_and_what_to_grant() {
        let report = report(&[State::Attached, refused(), State::Attached, absent(), lost()]);
        assert_eq!(detail(&report), "p0, p2 attached, p1 refused (EPERM; grant CAP_BPF), p3 absent (no BTF), p4 lost (gone)");
    }
}
