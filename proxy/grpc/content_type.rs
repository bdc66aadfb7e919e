//! Which content types are gRPC.

/// The type alone means protobuf; a subtype after `+` or parameters after `;` are allowed.
const GRPC: &[u8] = b"application/grpc";

/// Whether a request with this `content-type` is a gRPC call, by the rule of grpc-go: the type alone, or with `+…` or `;…` behind it.
/// `application/grpc-web` is another protocol.
#[must_use]
pub fn is_grpc(content_type: &[u8]) -> bool {
    content_type
        .split_at_checked(GRPC.len())
        .is_some_and(|(kind, rest)| kind.eq_ignore_ascii_case(GRPC) && matches!(rest.first(), None | Some(b'+' | b';')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_alone_or_with_subtype_or_parameters_is_grpc() {
        for good in ["application/grpc", "application/grpc+proto", "application/grpc;charset=utf-8", "Application/gRPC+proto"] {
            assert!(is_grpc(good.as_bytes()), "{good}");
        }
    }

    #[test]
    fn web_json_and_nothing_are_not_grpc() {
        for bad in ["", "application/grpc-web", "application/grp", "application/json", "text/plain; application/grpc"] {
            assert!(!is_grpc(bad.as_bytes()), "{bad}");
        }
    }
}
