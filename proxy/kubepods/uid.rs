//! Pod uids, however they are spelled in paths.

/// A pod's uid as its 32 hexadecimal digits: dashes (API, log paths), underscores (systemd slices) and neither (static pods) are
/// spellings of the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodUid(u128);

// === impl PodUid ===

impl PodUid {
    /// Reads any of the spellings; `None` where it is no uid.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = || text.bytes().filter(|byte| !matches!(byte, b'-' | b'_'));
        (digits().count() == 32).then_some(())?;
        let value = digits().try_fold(0, |value, digit| Some(value << 4 | u128::from(char::from(digit).to_digit(16)?)))?;
        Some(Self(value))
    }

    /// The pod whose cgroup has this directory name: `pod<uid>` (cgroupfs driver) or `…-pod<uid>.slice` (systemd driver).
    #[must_use]
    pub fn of_cgroup(name: &str) -> Option<Self> {
        match name.strip_suffix(".slice") {
            Some(slice) => Self::parse(&slice[slice.rfind("-pod")? + "-pod".len()..]),
            None => Self::parse(name.strip_prefix("pod")?),
        }
    }
}

impl std::fmt::Display for PodUid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_uid_is_the_same_uid() {
        let uid = PodUid::parse("0123456789abcdef0123456789abcdef").unwrap();
        for name in [
            "pod01234567-89ab-cdef-0123-456789abcdef",
            "pod0123456789abcdef0123456789abcdef",
            "kubepods-pod01234567_89ab_cdef_0123_456789abcdef.slice",
            "kubepods-burstable-pod01234567_89ab_cdef_0123_456789abcdef.slice",
            "kubelet-kubepods-besteffort-pod01234567_89ab_cdef_0123_456789abcdef.slice",
        ] {
            assert_eq!(PodUid::of_cgroup(name), Some(uid), "{name}");
        }
    }

    #[test]
    fn other_cgroups_are_no_pods() {
        for name in
            ["burstable", "kubepods-burstable.slice", "pod", "podXYZ", "pod0123", "cri-containerd-0123.scope", "x.slice", ""]
        {
            assert_eq!(PodUid::of_cgroup(name), None, "{name}");
        }
    }
}
