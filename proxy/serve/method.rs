//! The methods that are served, and how a path names them.

use crate::grpc::{Code, Status};

/// A method of the podresources API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// `v1` List
    List,
    /// `v1` GetAllocatableResources
    Allocatable,
    /// `v1` Get
    Get,
    /// `v1alpha1` List
    AlphaList,
}

const V1: &str = "v1.PodResourcesLister";
const V1ALPHA1: &str = "v1alpha1.PodResourcesLister";

/// Most bytes of an unknown path that an error text repeats.
const MAX_SHOWN: usize = 200;

// === impl Method ===

impl Method {
    /// All of them, in the order of their discriminants.
    pub const ALL: [Self; 4] = [Self::List, Self::Allocatable, Self::Get, Self::AlphaList];

    /// The method's name in its service.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::List | Self::AlphaList => "List",
            Self::Allocatable => "GetAllocatableResources",
            Self::Get => "Get",
        }
    }

    /// The version of the API that the method belongs to, as the kubelet's metrics label it.
    #[must_use]
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::List | Self::Allocatable | Self::Get => "v1",
            Self::AlphaList => "v1alpha1",
        }
    }

    /// The method at this path; otherwise `Unimplemented` in the words of grpc-go.
    pub(super) fn at(path: &str) -> Result<Self, Status> {
        match path {
            "/v1.PodResourcesLister/List" => Ok(Self::List),
            "/v1.PodResourcesLister/GetAllocatableResources" => Ok(Self::Allocatable),
            "/v1.PodResourcesLister/Get" => Ok(Self::Get),
            "/v1alpha1.PodResourcesLister/List" => Ok(Self::AlphaList),
            _ => Err(unknown(path)),
        }
    }
}

#[cold]
fn unknown(path: &str) -> Status {
    let shown = |text: &str| text.chars().take(MAX_SHOWN).collect::<String>();
    let text = match path.strip_prefix('/').and_then(|path| path.rsplit_once('/')) {
        None => format!("malformed method name: {:?}", shown(path)),
        Some((service @ (V1 | V1ALPHA1), method)) => format!("unknown method {} for service {service}", shown(method)),
        Some((service, _)) => format!("unknown service {}", shown(service)),
    };
    Status::new(Code::Unimplemented, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_is_found_at_the_path_that_its_names_make() {
        for method in Method::ALL {
            let path = format!("/{}.PodResourcesLister/{}", method.api_version(), method.name());
            assert_eq!(Method::at(&path), Ok(method), "{path}");
        }
    }

    #[test]
    fn unknown_services_methods_and_paths_are_unimplemented_in_the_words_of_grpc_go() {
        for (path, text) in [
            ("/v1.PodResourcesLister/Watch", "unknown method Watch for service v1.PodResourcesLister"),
            ("/v1alpha1.PodResourcesLister/Get", "unknown method Get for service v1alpha1.PodResourcesLister"),
            ("/v2.PodResourcesLister/List", "unknown service v2.PodResourcesLister"),
            ("/a/b/c", "unknown service a/b"),
            ("/nothing", "malformed method name: \"/nothing\""),
            ("/", "malformed method name: \"/\""),
        ] {
            assert_eq!(Method::at(path), Err(Status::new(Code::Unimplemented, text)));
        }
    }

    #[test]
    fn an_error_repeats_little_of_a_long_path() {
        let status = Method::at(&format!("/{}/x", "é".repeat(9000))).unwrap_err();
        assert!(status.message.chars().count() < 300);
    }
}
