//! What goes with a call beside its message, both ways.
//!
//! | header | direction | value |
//! |---|---|---|
//! | `podresources-max-age` | request | how old an answer may be, such as `5s` or `1m 30s`; `0s` asks for a new capture |
//! | `podresources-age` | response | seconds since the capture of this answer began, three decimals, such as `0.042` |
//! | `podresources-epoch` | response | `<instance>-<epoch>`: equal values mean equal knowledge, of one process of ours |
//! | `podresources-source` | response | `kubelet` or `host` |
//! | `podresources-stale` | response | `true` where the answer may be older than the last change; otherwise absent |
//! | `podresources-client` | refusal | the client as we see it: `pod:kube-system/dns-1`, `unit:kubelet.service`, `uid:1000` |
//! | `podresources-limit` | refusal | the limit that it is over, such as `100/s, burst 100` |
//! | `grpc-retry-pushback-ms` | refusal | when a next try makes sense (gRFC A6), where that can be said |

use std::cell::RefCell;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::admission::Refused;
use crate::answer::{Freshness, Source, Terms};
use crate::grpc::{Code, Status};

const MAX_AGE: HeaderName = HeaderName::from_static("podresources-max-age");
const AGE: HeaderName = HeaderName::from_static("podresources-age");
const EPOCH: HeaderName = HeaderName::from_static("podresources-epoch");
const SOURCE: HeaderName = HeaderName::from_static("podresources-source");
const STALE: HeaderName = HeaderName::from_static("podresources-stale");
const CLIENT: HeaderName = HeaderName::from_static("podresources-client");
const LIMIT: HeaderName = HeaderName::from_static("podresources-limit");
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// How many headers [`Labels::write`] adds at most.
pub(super) const MOST: usize = 4;

/// Writes response metadata. Keeps the last values that it made, since consecutive answers mostly share them.
#[derive(Debug)]
pub(super) struct Labels {
    instance: u32,
    last: RefCell<Last>,
}

#[derive(Debug)]
struct Last {
    epoch: u64,
    epoch_value: HeaderValue,
    age_ms: u128,
    age_value: HeaderValue,
}

/// Reads the terms of a request.
pub(super) fn terms(headers: &HeaderMap) -> Result<Terms, Status> {
    let Some(value) = headers.get(MAX_AGE) else { return Ok(Terms::default()) };
    let text = String::from_utf8_lossy(value.as_bytes());
    match humantime::parse_duration(text.trim()) {
        Ok(max_age) => Ok(Terms { max_age: Some(max_age), ..Terms::default() }),
        Err(error) => Err(Status::new(
            Code::InvalidArgument,
            format!(
                "metadata {MAX_AGE} is {:?}, which is not a duration ({error}); expected for example 500ms, 5s, 1m, or 0s for a new capture",
                text.chars().take(64).collect::<String>()
            ),
        )),
    }
}

/// Adds what a client should know that is over a limit.
#[cold]
pub(super) fn refused(refused: &Refused, headers: &mut HeaderMap) {
    for (name, text) in [(CLIENT, &refused.client), (LIMIT, &refused.limit)] {
        // Both are printable ASCII; what is not goes unsaid.
        if let Ok(value) = HeaderValue::from_str(text) {
            headers.insert(name, value);
        }
    }
    if let Some(after) = refused.after {
        let ms = u32::try_from(after.as_micros().div_ceil(1_000)).unwrap_or(u32::MAX);
        headers.insert(PUSHBACK, HeaderValue::from(ms));
    }
}

// === impl Labels ===

impl Labels {
    /// For the process of this `instance`: an epoch means nothing to another one.
    pub(super) fn new(instance: u32) -> Self {
        let last = Last { epoch: 0, epoch_value: epoch_value(instance, 0), age_ms: 0, age_value: age_value(0) };
        Self { instance, last: RefCell::new(last) }
    }

    /// Adds the response metadata of an answer this old.
    pub(super) fn write(&self, freshness: &Freshness, headers: &mut HeaderMap) {
        let mut last = self.last.borrow_mut();
        if last.epoch != freshness.epoch {
            last.epoch = freshness.epoch;
            last.epoch_value = epoch_value(self.instance, freshness.epoch);
        }
        let age_ms = freshness.age.as_millis();
        if last.age_ms != age_ms {
            last.age_ms = age_ms;
            last.age_value = age_value(age_ms);
        }
        headers.insert(AGE, last.age_value.clone());
        headers.insert(EPOCH, last.epoch_value.clone());
        headers.insert(
            SOURCE,
            match freshness.source {
                Source::Kubelet => const { HeaderValue::from_static(Source::Kubelet.name()) },
                Source::Host => const { HeaderValue::from_static(Source::Host.name()) },
            },
        );
        if freshness.stale {
            headers.insert(STALE, const { HeaderValue::from_static("true") });
        }
    }
}

#[expect(clippy::expect_used, reason = "hexadecimal and decimal digits are always a header value")]
fn epoch_value(instance: u32, epoch: u64) -> HeaderValue {
    HeaderValue::try_from(format!("{instance:08x}-{epoch}")).expect("digits")
}

/// Marked sensitive, which HPACK sends as "never indexed" (RFC 7541, 7.1.3): the value is another one in every answer, and would push what
/// is worth keeping out of the connection's header table, at the cost of both sides.
#[expect(clippy::expect_used, reason = "decimal digits are always a header value")]
fn age_value(ms: u128) -> HeaderValue {
    let mut value = HeaderValue::try_from(format!("{}.{:03}", ms / 1000, ms % 1000)).expect("digits");
    value.set_sensitive(true);
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn max_age(value: &'static str) -> Result<Option<Duration>, Status> {
        let mut headers = HeaderMap::new();
        headers.insert(MAX_AGE, HeaderValue::from_static(value));
        terms(&headers).map(|terms| terms.max_age)
    }

    #[test]
    fn a_request_may_say_how_old_its_answer_may_be() {
        assert_eq!(terms(&HeaderMap::new()), Ok(Terms { max_age: None, ..Terms::default() }));
        assert_eq!(max_age("0s"), Ok(Some(Duration::ZERO)));
        assert_eq!(max_age(" 1m 30s"), Ok(Some(Duration::from_secs(90))));
    }

    #[test]
    fn what_is_no_duration_is_refused_with_an_example() {
        for bad in ["", "5", "-1s", "soon"] {
            let status = max_age(bad).unwrap_err();
            assert_eq!(status.code, Code::InvalidArgument, "{bad}");
            assert!(status.message.contains(&format!("podresources-max-age is {bad:?}")), "{status}");
            assert!(status.message.contains("expected for example 500ms, 5s"), "{status}");
        }
    }

    #[test]
    fn an_answer_tells_age_epoch_and_source_and_stale_only_where_it_is() {
        let labels = Labels::new(0x00c0_ffee);
        let mut freshness = Freshness { age: Duration::from_millis(61_042), epoch: 7, source: Source::Kubelet, stale: false };
        let mut headers = HeaderMap::new();
        labels.write(&freshness, &mut headers);
        assert_eq!(headers["podresources-age"], "61.042");
        assert_eq!(headers["podresources-epoch"], "00c0ffee-7");
        assert_eq!(headers["podresources-source"], "kubelet");
        assert_eq!(headers.get("podresources-stale"), None);
        freshness = Freshness { age: Duration::from_micros(900), epoch: 8, stale: true, ..freshness };
        labels.write(&freshness, &mut headers);
        assert_eq!(headers["podresources-age"], "0.000");
        assert_eq!(headers["podresources-epoch"], "00c0ffee-8");
        assert_eq!(headers["podresources-stale"], "true");
    }

    #[test]
    fn the_age_stays_out_of_the_header_table_and_the_epoch_does_not() {
        let mut headers = HeaderMap::new();
        for age in [0, 5] {
            let freshness = Freshness { age: Duration::from_millis(age), epoch: age, source: Source::Kubelet, stale: false };
            Labels::new(1).write(&freshness, &mut headers);
            assert!(headers["podresources-age"].is_sensitive());
            assert!(!headers["podresources-epoch"].is_sensitive());
        }
    }
}
