//! A resolved configuration as the TOML that would give it again, each line with where its value came from.

use std::fmt::Write;

use super::classes;
use super::resolve::Resolved;
use super::setting::{Default, Kind, Setting};

/// The column at which comments begin, where the line leaves room.
const COMMENT_AT: usize = 64;

// === impl Resolved ===

impl Resolved {
    /// The configuration as a TOML file.
    pub fn to_toml(&self) -> String {
        let mut top = String::new();
        let mut sections = String::new();
        let mut section = "";
        for (setting, value, origin) in &self.shown {
            let (of, name) = setting.key.split_once('.').unwrap_or(("", setting.key));
            let out = if of.is_empty() { &mut top } else { &mut sections };
            if of != section && !of.is_empty() {
                section = of;
                // Writing into a string cannot fail.
                let _written = writeln!(out, "\n[{of}]");
            }
            let line = match (value, setting.default) {
                (Some(value), _) => format!("{name} = {}", written(setting, value)),
                (None, Default::Unset(meaning)) => format!("# {name}: {meaning}"),
                (None, Default::Is(_)) => format!("# {name}"),
            };
            let _written = writeln!(out, "{line:COMMENT_AT$} # {origin}");
        }
        format!("{top}{sections}{}", classes::to_toml(&self.config.classes))
    }
}

/// The value as the file writes it. It was read from this text before, so a number is a number.
fn written(setting: &Setting, value: &str) -> String {
    match setting.kind {
        Kind::Number => value.to_owned(),
        Kind::Switch => matches!(value, "true" | "yes" | "on" | "1").to_string(),
        Kind::Text => toml::Value::String(value.to_owned()).to_string(),
    }
}
