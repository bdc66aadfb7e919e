//! Values as people write them: each function reads one kind and says what would be right where it cannot.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use nix::unistd::{Group, User};

use super::error::nearest;
use super::{Admission, ChangeSource, LogFormat, Source};
use crate::client::SocketPath;
use crate::cpuset::CpuSet;

/// A value, or what is wrong with its text.
pub(crate) type Read<T> = Result<T, String>;

pub(super) fn socket(text: &str) -> Read<SocketPath> {
    text.parse().map_err(|error: crate::client::PathError| error.to_string())
}

pub(super) fn socket_or_off(text: &str) -> Read<Option<SocketPath>> {
    if text == "off" { Ok(None) } else { socket(text).map(Some) }
}

pub(super) fn dir(text: &str) -> Read<PathBuf> {
    if text.starts_with('/') { Ok(PathBuf::from(text)) } else { Err("give an absolute path".into()) }
}

pub(super) fn dirs(text: &str) -> Read<Vec<PathBuf>> {
    text.split(',').map(str::trim).filter(|path| !path.is_empty()).map(dir).collect()
}

pub(super) fn cpus(text: &str) -> Read<CpuSet> {
    CpuSet::parse(text).map_err(|error| error.to_string())
}

pub(super) fn dir_or_off(text: &str) -> Read<Option<PathBuf>> {
    match text {
        "off" => Ok(None),
        _ => dir(text).map(Some).map_err(|wrong| format!("{wrong}, or off")),
    }
}

pub(super) fn size(text: &str) -> Read<usize> {
    let size: bytesize::ByteSize = text.parse().map_err(|_| "give a size with a unit, such as 64MiB".to_owned())?;
    match usize::try_from(size.as_u64()) {
        Ok(0) => Err("it must be more than nothing".into()),
        Ok(size) if u32::try_from(size).is_ok() => Ok(size),
        _ => Err("a gRPC message has less than 4GiB".into()),
    }
}

pub(super) fn time(text: &str) -> Read<Duration> {
    /// Longer ones mean nothing here, and clocks cannot hold all that a text can.
    const LONGEST: Duration = Duration::from_hours(365 * 24);
    match humantime::parse_duration(text) {
        Ok(time) if time > LONGEST => Err("a year (365days) is the longest".into()),
        Ok(time) => Ok(time),
        Err(_) => Err("give a time with a unit, such as 500ms, 10s or 5m".into()),
    }
}

pub(super) fn time_above_zero(text: &str) -> Read<Duration> {
    time(text).and_then(|time| if time.is_zero() { Err("it must be more than nothing".into()) } else { Ok(time) })
}

pub(super) fn rate(text: &str) -> Read<f64> {
    let rate = text.strip_suffix("/s").unwrap_or(text).trim();
    match rate.parse::<f64>() {
        Ok(rate) if rate.is_finite() && rate > 0.0 => Ok(rate),
        _ => Err("give calls a second above zero, such as 20/s".into()),
    }
}

pub(super) fn burst(text: &str) -> Read<NonZeroU32> {
    text.parse().map_err(|_| "give a whole number from 1".into())
}

pub(super) fn admission(text: &str) -> Read<Admission> {
    match text {
        "enforce" => Ok(Admission::Enforce),
        "observe" => Ok(Admission::Observe),
        "off" => Ok(Admission::Off),
        _ => Err("give enforce, observe or off".into()),
    }
}

pub(super) fn count(text: &str) -> Read<NonZeroUsize> {
    text.parse().map_err(|_| "give a whole number from 1".into())
}

pub(super) fn mode(text: &str) -> Read<u32> {
    let digits = text.strip_prefix("0o").unwrap_or(text);
    match u32::from_str_radix(digits, 8) {
        Ok(mode) if mode <= 0o777 && !digits.starts_with('+') => Ok(mode),
        _ => Err("give permission bits in octal, such as 0660".into()),
    }
}

pub(super) fn switch(text: &str) -> Read<bool> {
    match text {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        _ => Err("give true or false".into()),
    }
}

pub(super) fn user(text: &str) -> Read<u32> {
    let found = |name: &str| User::from_name(name).map(|user| user.map(|user| user.uid.as_raw()));
    id(text, "user", found)
}

pub(super) fn group(text: &str) -> Read<u32> {
    let found = |name: &str| Group::from_name(name).map(|group| group.map(|group| group.gid.as_raw()));
    id(text, "group", found)
}

fn id(text: &str, what: &str, found: impl Fn(&str) -> nix::Result<Option<u32>>) -> Read<u32> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    match found(text) {
        Ok(Some(id)) => Ok(id),
        Ok(None) => Err(format!("there is no such {what} here; give a number if it is known elsewhere only")),
        Err(error) => Err(format!("looking up the {what} failed: {error}")),
    }
}

pub(super) fn address_or_off(text: &str) -> Read<Option<SocketAddr>> {
    if text == "off" {
        Ok(None)
    } else {
        text.parse().map(Some).map_err(|_| "give ADDRESS:PORT, such as 127.0.0.1:9510, or off".into())
    }
}

pub(super) fn source(text: &str) -> Read<Source> {
    match text {
        "auto" => Ok(Source::Auto),
        "kubelet" => Ok(Source::Kubelet),
        "host" => Ok(Source::Host),
        _ => Err("give auto, kubelet or host".into()),
    }
}

/// Whether the host stands in.
pub(super) fn failover(text: &str) -> Read<bool> {
    match text {
        "off" => Ok(false),
        "host" => Ok(true),
        _ => Err("give off or host".into()),
    }
}

/// Whether its answers may lack all devices.
pub(super) fn host_answers(text: &str) -> Read<bool> {
    match text {
        "whole" => Ok(false),
        "partial" => Ok(true),
        _ => Err("give whole or partial".into()),
    }
}

pub(super) fn time_or_off(text: &str) -> Read<Option<Duration>> {
    match text {
        "off" => Ok(None),
        _ => time_above_zero(text).map(Some).map_err(|wrong| format!("{wrong}, or off")),
    }
}

/// A list with commas. The order is ours: best first.
pub(super) fn change_sources(text: &str) -> Read<Vec<ChangeSource>> {
    let all = ChangeSource::ALL.map(ChangeSource::name);
    let mut chosen = Vec::new();
    for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let Some(source) = ChangeSource::ALL.into_iter().find(|source| source.name() == name) else {
            let nearest = nearest(name, all.into_iter()).map(|nearest| format!(", did you mean {nearest}")).unwrap_or_default();
            return Err(format!("there is no change source {name:?}{nearest}; there are {}", all.join(", ")));
        };
        chosen.push(source);
    }
    if chosen.is_empty() { Err(format!("give at least one of {}", all.join(", "))) } else { Ok(chosen) }
}

pub(super) fn log_format(text: &str) -> Read<LogFormat> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err("give text or json".into()),
    }
}

/// A level, or directives. `EnvFilter` would take a mistyped level for a module's name and log nothing.
pub(crate) fn log_level(text: &str) -> Read<String> {
    use tracing_subscriber::filter::{EnvFilter, LevelFilter};

    let words = "give off, error, warn, info, debug or trace; by module: info,podresources_proxy::refresh=debug";
    let level = |text: &str| text.trim().parse::<LevelFilter>().is_ok();
    let known = text.split(',').all(|part| part.rsplit_once('=').map_or_else(|| level(part), |(_, after)| level(after)));
    if text.is_empty() || !known || EnvFilter::builder().parse(text).is_err() { Err(words.into()) } else { Ok(text.to_owned()) }
}
