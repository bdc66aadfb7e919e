//! The metrics of the product: plain atomics that their owners add to, read by collectors when somebody scrapes.
//!
//! The hot path holds the struct that it adds to and never looks a label up. To add a family: give the module that owns the numbers a
//! struct of atomics, write a [`Collector`] for it with [`counters`] and [`gauge`], hand it to [`Metrics::register`]. [`BuildInfo`] and
//! [`Process`] are the shortest examples.

mod build_info;
mod process;

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeLabelSet, NoLabelSet, prometheus_text, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

pub use build_info::BuildInfo;
pub use process::Process;
pub use prometheus_client::collector::Collector;

/// Before the name of every family of ours.
const PREFIX: &str = "podresources_proxy";
/// Labels of a family that has none.
pub const NO_LABELS: [(&str, &str); 0] = [];

/// All families of this process.
#[derive(Debug)]
pub struct Metrics {
    ours: Registry,
    /// Those whose names are the same for every program, so without our prefix.
    standard: Registry,
}

/// How a scrape is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text, version 0.0.4.
    Prometheus,
    /// OpenMetrics text, version 1.0.0.
    OpenMetrics,
}

// === impl Metrics ===

impl Metrics {
    /// Build info and the process's own figures.
    pub fn new() -> Self {
        let (mut ours, mut standard) = (Registry::with_prefix(PREFIX), Registry::default());
        ours.register_collector(Box::new(BuildInfo));
        standard.register_collector(Box::new(Process));
        Self { ours, standard }
    }

    /// Adds a collector's families. Their names get our prefix, counters' names their `_total`.
    pub fn register(&mut self, collector: Box<dyn Collector>) {
        self.ours.register_collector(collector);
    }

    /// Asks every collector. Fails only where a collector does.
    pub fn encode(&self, format: Format) -> Result<String, fmt::Error> {
        let mut out = String::new();
        for registry in [&self.ours, &self.standard] {
            match format {
                Format::Prometheus => prometheus_text::encode(&mut out, registry)?,
                Format::OpenMetrics => text::encode_registry(&mut out, registry)?,
            }
        }
        if format == Format::OpenMetrics {
            text::encode_eof(&mut out)?;
        }
        Ok(out)
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

// === impl Format ===

impl Format {
    /// The format that an `Accept` header (RFC 9110, section 12.5.1) prefers; plain Prometheus text unless OpenMetrics is asked for by
    /// name.
    pub fn wanted(accept: &str) -> Self {
        let (mut openmetrics, mut prometheus) = (0.0_f32, 0.0_f32);
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            let weight: f32 = parts.find_map(|part| part.strip_prefix("q=")).and_then(|q| q.parse().ok()).unwrap_or(1.0);
            match media {
                "application/openmetrics-text" => openmetrics = weight.max(openmetrics),
                "text/plain" => prometheus = weight.max(prometheus),
                _ => {}
            }
        }
        if openmetrics > 0.0 && openmetrics >= prometheus { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// The `Content-Type` of a scrape in this format.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => prometheus_text::CONTENT_TYPE,
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

// === one family ===

/// Writes a family of counters, one sample per label set. `name` is without `_total`.
pub fn counters<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    samples: impl IntoIterator<Item = (L, u64)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (labels, value) in samples {
        family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
    }
    Ok(())
}

/// Writes a counter without labels. `name` is without `_total`.
pub fn counter(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> fmt::Result {
    counters(encoder, name, help, [(NO_LABELS, value)])
}

/// Writes a family of gauges, one sample per label set.
pub fn gauges<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    samples: impl IntoIterator<Item = (L, u64)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in samples {
        family.encode_family(&labels)?.encode_gauge(&value)?;
    }
    Ok(())
}

/// Writes a gauge without labels; without a value, only its name.
pub fn gauge<V: EncodeGaugeValue>(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: Option<V>) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    value.map_or(Ok(()), |value| family.encode_gauge(&value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_the_one_that_accept_prefers() {
        let prometheus_2 = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,\
                            text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        assert_eq!(Format::wanted(prometheus_2), Format::OpenMetrics);
        assert_eq!(Format::wanted("application/openmetrics-text"), Format::OpenMetrics);
        for text in
            ["", "*/*", "text/plain", "application/openmetrics-text;q=0.2, text/plain; q=0.9", "application/openmetrics-text; q=0"]
        {
            assert_eq!(Format::wanted(text), Format::Prometheus, "{text}");
        }
    }

    #[test]
    fn a_process_tells_its_build_and_its_own_figures() {
        let scrape = Metrics::new().encode(Format::Prometheus).unwrap();
        let info = format!("podresources_proxy_build_info{{version=\"{}\"}} 1\n", env!("CARGO_PKG_VERSION"));
        assert!(scrape.contains(&info), "{scrape}");
        for name in ["process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds", "process_start_time_seconds"]
        {
            let sample = scrape.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
            let value: f64 = sample.unwrap_or_else(|| panic!("no {name} in\n{scrape}")).parse().unwrap();
            assert!(value.is_finite() && value >= 0.0, "{name} {value}");
        }
    }

    #[test]
    fn only_openmetrics_ends_with_eof_and_ends_with_it_once() {
        let metrics = Metrics::new();
        let open = metrics.encode(Format::OpenMetrics).unwrap();
        assert!(open.ends_with("\n# EOF\n") && open.matches("# EOF").count() == 1, "{open}");
        assert!(!metrics.encode(Format::Prometheus).unwrap().contains("# EOF"));
    }
}
