//! Tables without lines, as `kubectl` prints them: one line a row in the plain form, so that awk and grep work.

use std::collections::BTreeMap;

use comfy_table::{ContentArrangement, Table, presets};

use super::cpus::{Cpus, NodesOfCpus, format_list};
use super::quantity;
use super::view::{Claim, Holds, Nodes, Owner, Row};

/// Stands where there is nothing.
pub(super) const NOTHING: &str = "-";

/// What a table of pods looks like.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Style<'a> {
    /// With ids, NUMA nodes and what claims got; several lines a row.
    pub(super) wide: bool,
    /// Columns that `v1alpha1` has nothing for are left out.
    pub(super) devices_only: bool,
    /// NUMA node by CPU, where it is known.
    pub(super) nodes_of_cpus: Option<&'a NodesOfCpus>,
}

/// Pods and containers with what they hold.
pub(super) fn pods(rows: &[Row], style: Style<'_>) -> String {
    let mut header = vec!["NAMESPACE", "POD", "CONTAINER"];
    if !style.devices_only {
        header.extend(["CPUS", "MEMORY"]);
    }
    header.push("DEVICES");
    if !style.devices_only {
        header.push("CLAIMS");
        if style.wide {
            header.push("NUMA");
        }
    }
    render(header, rows.iter().map(|row| cells(row, style)))
}

/// Cells in columns, two spaces between them, nothing at the end of a line.
pub(super) fn render<H: Into<String>>(header: Vec<H>, rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.into_iter().map(Into::<String>::into));
    table.add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let mut text = String::new();
    for line in table.lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn cells(row: &Row, style: Style<'_>) -> Vec<String> {
    let Row { namespace, pod, owner, holds } = row;
    let owner = match owner {
        Owner::Pod => "(pod)",
        Owner::Container(name) => name,
    };
    let mut cells = vec![shown(namespace), shown(pod), shown(owner)];
    if !style.devices_only {
        cells.extend([list(&holds.cpus), memory(holds, style.wide)]);
    }
    cells.push(devices(holds, style.wide));
    if !style.devices_only {
        cells.push(claims(holds, namespace, style.wide));
        if style.wide {
            let unknown = BTreeMap::new();
            cells.push(list(&holds.nodes(style.nodes_of_cpus.unwrap_or(&unknown))));
        }
    }
    cells
}

/// A list of CPUs or nodes, never an empty cell.
pub(super) fn list(numbers: &Cpus) -> String {
    shown(&format_list(numbers))
}

/// Text from a reply without control characters: it goes to a terminal.
pub(super) fn shown(text: &str) -> String {
    if text.is_empty() {
        return NOTHING.to_owned();
    }
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

fn memory(holds: &Holds, wide: bool) -> String {
    /// The kind that needs no name where it is alone.
    const PLAIN: &str = "memory";
    // Plain memory comes first.
    let mut sizes: BTreeMap<(bool, &str, Option<&Nodes>), u64> = BTreeMap::new();
    for ((kind, nodes), size) in &holds.memory {
        let sum = sizes.entry((kind != PLAIN, kind, wide.then_some(nodes))).or_default();
        *sum = sum.saturating_add(*size);
    }
    let alone = sizes.keys().all(|(other, ..)| !other);
    let one = |((_, kind, nodes), size): ((bool, &str, Option<&Nodes>), u64)| {
        let size = quantity::memory(size);
        let size = if alone { size } else { format!("{}: {size}", shown(kind)) };
        match nodes {
            Some(nodes) if !nodes.is_empty() => format!("{size} on {}", format_list(nodes)),
            _ => size,
        }
    };
    joined(sizes.into_iter().map(one), wide)
}

fn devices(holds: &Holds, wide: bool) -> String {
    let one = |(resource, ids): (&String, &BTreeMap<String, Nodes>)| {
        let count = format!("{}: {}", shown(resource), ids.len());
        let ids = ids.keys().map(|id| shown(id)).collect::<Vec<_>>().join(", ");
        if wide { format!("{count} ({ids})") } else { count }
    };
    joined(holds.devices.iter().map(one), wide)
}

fn claims(holds: &Holds, namespace: &str, wide: bool) -> String {
    let one = |claim: &Claim| {
        let name =
            if claim.namespace == namespace { shown(&claim.name) } else { shown(&format!("{}/{}", claim.namespace, claim.name)) };
        let got = claim.devices.iter().map(|device| shown(device)).collect::<Vec<_>>().join(", ");
        if wide && !got.is_empty() { format!("{name} ({got})") } else { name }
    };
    joined(holds.claims.iter().map(one), wide)
}

/// On one line, or on one each.
fn joined(parts: impl Iterator<Item = String>, wide: bool) -> String {
    let parts: Vec<String> = parts.collect();
    if parts.is_empty() { NOTHING.to_owned() } else { parts.join(if wide { "\n" } else { ", " }) }
}
