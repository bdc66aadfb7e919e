//! What a kubelet of a given Kubernetes version offers over podresources.

use std::fmt;
use std::str::FromStr;

/// The Kubernetes version that the stand-in behaves like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// List alone, no rate limit, the shared pool in `cpu_ids`.
    V1_20,
    /// GetAllocatableResources and memory; Get is there and switched off; the rate limit.
    V1_27,
    /// Get, claims, sidecars; List shows active pods only.
    V1_34,
    /// CPUs and memory of the pod as a whole, `share_id` in claims.
    #[default]
    V1_37,
}

/// Not a profile that the stand-in knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown profile {given:?}: the stand-in knows 1.20, 1.27, 1.34 and 1.37")]
pub struct UnknownProfile {
    /// What was asked for.
    pub given: String,
}

/// How far a method is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// Not in this version: Unimplemented.
    Missing,
    /// In this version with its feature gate off: Unknown, and a text that says so.
    Off,
    /// Answered.
    On,
}

/// What a profile amounts to; [`super::Config::features`] takes one of these to switch single features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each one is a feature of its own")]
pub struct Features {
    /// `v1` Get.
    pub get: Support,
    /// `v1` GetAllocatableResources.
    pub allocatable: Support,
    /// The text of GetAllocatableResources when it is off; up to 1.26 it was worded differently.
    pub allocatable_off: &'static str,
    /// `memory` of containers and of the node (1.22).
    pub memory: bool,
    /// Containers without CPUs of their own report the shared pool as `cpu_ids` (until 1.20).
    pub shared_pool: bool,
    /// Claims of dynamic resource allocation are listed (on by default since 1.34).
    pub dynamic_resources: bool,
    /// `share_id` in claims (1.35).
    pub share_id: bool,
    /// Restartable init containers are listed, first (1.30).
    pub sidecars: bool,
    /// `v1` List leaves terminated pods out (1.34).
    pub active_pods_only: bool,
    /// `cpu_ids` and `memory` of the pod as a whole (1.37, gate `PodLevelResourceManagers`).
    pub pod_level: bool,
    /// The built-in rate limit (1.27).
    pub rate_limit: bool,
}

// === impl Profile ===

impl Profile {
    /// All of them, oldest first.
    pub const ALL: [Self; 4] = [Self::V1_20, Self::V1_27, Self::V1_34, Self::V1_37];

    /// The version as people write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V1_20 => "1.20",
            Self::V1_27 => "1.27",
            Self::V1_34 => "1.34",
            Self::V1_37 => "1.37",
        }
    }

    /// What this version offers. `pod_level` is off by default in a real 1.37; here it is on, to have its fields seen.
    pub const fn features(self) -> Features {
        let oldest = Features {
            get: Support::Missing,
            allocatable: Support::Missing,
            allocatable_off: "Pod Resources API GetAllocatableResources disabled",
            memory: false,
            shared_pool: true,
            dynamic_resources: false,
            share_id: false,
            sidecars: false,
            active_pods_only: false,
            pod_level: false,
            rate_limit: false,
        };
        let v1_27 = Features {
            get: Support::Off,
            allocatable: Support::On,
            allocatable_off: "PodResources API GetAllocatableResources disabled",
            memory: true,
            shared_pool: false,
            rate_limit: true,
            ..oldest
        };
        let v1_34 = Features { get: Support::On, dynamic_resources: true, sidecars: true, active_pods_only: true, ..v1_27 };
        match self {
            Self::V1_20 => oldest,
            Self::V1_27 => v1_27,
            Self::V1_34 => v1_34,
            Self::V1_37 => Features { share_id: true, pod_level: true, ..v1_34 },
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Profile {
    type Err = UnknownProfile;

    fn from_str(given: &str) -> Result<Self, UnknownProfile> {
        let version = given.strip_prefix('v').unwrap_or(given);
        Self::ALL.into_iter().find(|profile| profile.as_str() == version).ok_or_else(|| UnknownProfile { given: given.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_is_read_back_from_its_own_name() {
        for profile in Profile::ALL {
            assert_eq!(profile.to_string().parse(), Ok(profile));
        }
    }

    #[test]
    fn an_unknown_profile_is_named_beside_those_that_there_are() {
        let error = "1.99".parse::<Profile>().unwrap_err().to_string();
        assert!(error.contains("\"1.99\"") && error.contains("1.20, 1.27, 1.34 and 1.37"), "{error}");
    }
}
