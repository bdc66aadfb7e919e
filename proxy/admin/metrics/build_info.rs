//! What is running.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

use super::Collector;

/// `build_info`, always 1.
#[derive(Debug)]
pub struct BuildInfo;

// === impl BuildInfo ===

impl Collector for BuildInfo {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let labels = [("version", env!("CARGO_PKG_VERSION"))];
        encoder.encode_descriptor("build", "The running program", None, MetricType::Info)?.encode_info(&labels)
    }
}
