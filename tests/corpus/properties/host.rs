//! What the host source reads that others have written: bundles, CDI specifications, the kubelet's configuration, amounts.

use podresources_proxy::fuzzing::{amount, cdi_names, kubelet_settings};
use podresources_proxy::kubepods::Identity;

use super::source::Source;

pub(crate) fn check(input: &[u8]) {
    let mut source = Source(input);
    match source.below(4) {
        0 => bundle(source.0),
        1 => drop(cdi_names(&String::from_utf8_lossy(source.0)).map_err(|error| assert!(!error.is_empty()))),
        2 => drop(kubelet_settings(&String::from_utf8_lossy(source.0)).map_err(|error| assert!(!error.is_empty()))),
        _ => whole(&String::from_utf8_lossy(source.0)),
    }
}

fn bundle(json: &[u8]) {
    let read = [false, true].map(|has_logs| Identity::read(json, |_| has_logs));
    for identity in read.iter().flatten() {
        assert_eq!(identity.sandbox, identity.container.is_none(), "{identity:?}");
        let names = identity.container.iter().chain(identity.pod.iter().flat_map(|pod| [&pod.namespace, &pod.name]));
        for name in names {
            let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
            assert!(name == "POD" || (!name.is_empty() && name.bytes().all(good)), "{name:?}");
        }
    }
    assert_eq!(read[0].is_ok(), read[1].is_ok());
    for error in read.into_iter().filter_map(Result::err) {
        assert!(error.to_string().len() < 1000, "{error}");
    }
}

/// An amount without suffix, point or power is the number itself; a suffix makes no amount smaller, save `m`.
fn whole(text: &str) {
    let Some(read) = amount(text) else { return };
    let digits: String = text.trim().chars().take_while(char::is_ascii_digit).collect();
    if digits == text.trim() {
        assert_eq!(Ok(read), digits.parse());
    }
    if !text.trim().ends_with('m') {
        assert!(digits.is_empty() || digits.parse().is_ok_and(|number: u64| read >= number), "{text:?} is {read}");
    }
    assert_eq!(amount(&format!("{read}")), Some(read));
}
