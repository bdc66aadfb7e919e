//! Calls of all kinds, one by one.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method as Verb, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use podresources_proxy::answer::{Ask, Terms};
use podresources_proxy::grpc::Code;
use podresources_proxy::proto::v1;
use podresources_proxy::serve::Method;
use prost::Message as _;
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::UnboundedReceiverStream;

use crate::client::{ALLOCATABLE, ALPHA_LIST, Body, Client, GET, LIST, Reply, full, request};
use crate::fake::{Fake, Running, eventually, framed};

async fn started(fake: &Fake) -> (Running, Client) {
    let server = Running::new(fake);
    let client = Client::connect(&server.path()).await.unwrap();
    (server, client)
}

/// A body whose pieces come when they are sent, and which ends when the sender is gone.
fn piecemeal() -> (mpsc::UnboundedSender<&'static [u8]>, Body) {
    let (send, pieces) = mpsc::unbounded_channel();
    let frames = UnboundedReceiverStream::new(pieces).map(|piece| Ok(Frame::data(Bytes::from_static(piece))));
    (send, StreamBody::new(frames).boxed())
}

fn get(namespace: &str, name: &str) -> Body {
    let message = v1::GetPodResourcesRequest { pod_namespace: namespace.into(), pod_name: name.into() };
    full(&framed(&message.encode_to_vec()))
}

// === good calls ===

#[tokio::test]
async fn list_allocatable_and_alpha_list_get_the_bytes_as_they_are_and_status_zero() {
    let fake = Fake::replying(b"not even protobuf \xff");
    let (server, mut client) = started(&fake).await;
    for (path, ask) in [(LIST, Ask::List), (ALLOCATABLE, Ask::Allocatable), (ALPHA_LIST, Ask::AlphaList)] {
        client.ask(path, |_| {}).await.assert_ok(b"\0\0\0\0\x13not even protobuf \xff");
        assert_eq!(fake.last_asked(), (ask, Terms::default()));
    }
    server.stop().await;
}

#[tokio::test]
async fn get_asks_for_the_pod_that_the_message_names() {
    let fake = Fake::replying(b"pod");
    let (server, mut client) = started(&fake).await;
    client.ask(GET, |request| *request.body_mut() = get("kube-system", "dns-0")).await.assert_ok(b"\0\0\0\0\x03pod");
    assert_eq!(fake.last_asked().0, Ask::Get { namespace: "kube-system".into(), name: "dns-0".into() });
    server.stop().await;
}

#[tokio::test]
async fn a_reply_of_many_megabytes_arrives_whole() {
    let message: Vec<u8> = (0..20_000_000_u32).map(|at| at.to_le_bytes()[at as usize % 3]).collect();
    let (server, mut client) = started(&Fake::replying(&message)).await;
    client.ask(LIST, |_| {}).await.assert_ok(&framed(&message));
    assert_eq!(server.serving.stats().largest_reply(), 20_000_005);
    server.stop().await;
}

#[tokio::test]
async fn a_client_made_by_tonic_gets_its_answers_and_the_error_as_it_was_said() {
    let response = v1::ListPodResourcesResponse {
        pod_resources: vec![v1::PodResources { name: "a".into(), namespace: "b".into(), ..Default::default() }],
    };
    let good = Running::new(&Fake::replying(&response.encode_to_vec()));
    let bad = Running::new(&Fake::failing(Code::Unknown, "pod ü in namespace 100% not found"));
    for (server, expected) in [(&good, Ok(response)), (&bad, Err((Code::Unknown, "pod ü in namespace 100% not found")))] {
        let channel = tonic::transport::Endpoint::try_from(format!("unix://{}", server.path().display())).unwrap();
        let mut client = v1::pod_resources_lister_client::PodResourcesListerClient::new(channel.connect_lazy());
        let got = client.list(v1::ListPodResourcesRequest {}).await;
        match expected {
            Ok(response) => assert_eq!(got.unwrap().into_inner(), response),
            Err((code, text)) => {
                let status = got.unwrap_err();
                assert_eq!((status.code(), status.message()), (code, text));
            }
        }
    }
}

#[tokio::test]
async fn a_message_that_comes_in_pieces_is_put_together() {
    let fake = Fake::replying(b"");
    let (server, mut client) = started(&fake).await;
    let (send, body) = piecemeal();
    let reply = client.ask(GET, |request| *request.body_mut() = body);
    let pieces = async {
        for piece in [&b"\0\0"[..], b"\0\0\x06\x0a", b"\x01a\x12", b"\x01b"] {
            send.send(piece).unwrap();
            tokio::task::yield_now().await;
        }
        drop(send);
    };
    let (reply, ()) = tokio::join!(reply, pieces);
    reply.assert_ok(b"\0\0\0\0\0");
    assert_eq!(fake.last_asked().0, Ask::Get { namespace: "b".into(), name: "a".into() });
    server.stop().await;
}

// === metadata ===

#[tokio::test]
async fn an_answer_tells_its_age_epoch_and_source_and_is_marked_where_it_is_stale() {
    let mut fake = Fake::replying(b"");
    for stale in [false, true] {
        fake.stale = stale;
        let (server, mut client) = started(&fake).await;
        let reply = client.ask(LIST, |_| {}).await;
        assert_eq!(reply.headers["podresources-age"], "1.042");
        assert_eq!(reply.headers["podresources-epoch"], "00c0ffee-7");
        assert_eq!(reply.headers["podresources-source"], "kubelet");
        assert_eq!(reply.headers.get("podresources-stale"), stale.then_some(&HeaderValue::from_static("true")));
        assert_eq!(reply.headers.len(), if stale { 5 } else { 4 }, "nothing else: {:?}", reply.headers);
        server.stop().await;
    }
}

#[tokio::test]
async fn a_request_says_how_old_its_answer_may_be() {
    let fake = Fake::replying(b"");
    let (server, mut client) = started(&fake).await;
    for (text, max_age) in [("0s", Duration::ZERO), ("1m 30s", Duration::from_secs(90))] {
        let reply = client.ask(LIST, |request| header(request, "podresources-max-age", text)).await;
        reply.assert_ok(b"\0\0\0\0\0");
        assert_eq!(fake.last_asked().1, Terms { max_age: Some(max_age), ..Terms::default() });
    }
    let reply = client.ask(LIST, |request| header(request, "podresources-max-age", "a while")).await;
    let (code, text) = reply.error();
    assert_eq!(code, Code::InvalidArgument);
    assert!(text.starts_with("metadata podresources-max-age is \"a while\", which is not a duration"), "{text}");
    server.stop().await;
}

// === waiting ===

#[tokio::test]
async fn an_answer_that_has_to_be_waited_for_comes_when_it_is_there() {
    let fake = Fake::replying(b"late").gated();
    let (server, mut client) = started(&fake).await;
    let opened = async {
        eventually("the call waits", || fake.waiting() == 1).await;
        fake.open();
    };
    let (reply, ()) = tokio::join!(client.ask(LIST, |_| {}), opened);
    reply.assert_ok(b"\0\0\0\0\x04late");
    assert!((9..=10).contains(&fake.patience().unwrap().as_secs()));
    server.stop().await;
}

#[tokio::test]
async fn a_wait_ends_at_the_deadline_that_the_client_set() {
    let fake = Fake::replying(b"").gated();
    let (server, mut client) = started(&fake).await;
    let reply = client.ask(LIST, |request| header(request, "grpc-timeout", "30m")).await;
    assert_eq!(reply.error(), (Code::Unavailable, "waited for a gate that nobody opened".into()));
    assert!(fake.patience().unwrap() <= Duration::from_millis(30));
    server.stop().await;
}

#[tokio::test]
async fn the_longest_deadline_of_the_protocol_is_taken() {
    let fake = Fake::replying(b"").gated();
    fake.open();
    let (server, mut client) = started(&fake).await;
    client.ask(LIST, |request| header(request, "grpc-timeout", "99999999H")).await.assert_ok(b"\0\0\0\0\0");
    server.stop().await;
}

#[tokio::test]
async fn a_call_that_its_client_gives_up_is_dropped_and_counted_as_cancelled() {
    let fake = Fake::replying(b"").gated();
    let (server, client) = started(&fake).await;
    let stats = server.serving.stats();
    let mut send = client.send.clone();
    let call = tokio::spawn(async move { send.send_request(request(LIST)).await });
    eventually("the call waits", || fake.waiting() == 1).await;
    assert_eq!(stats.in_flight(), 1);
    call.abort();
    eventually("the wait is given up", || fake.waiting() == 0).await;
    assert_eq!(stats.in_flight(), 0);
    assert_eq!(stats.calls(Some(Method::List), Code::Cancelled), 1);
    assert!(!client.connection.is_finished());
    server.stop().await;
}

// === bad calls ===

fn header(request: &mut http::Request<Body>, name: &'static str, value: &'static str) {
    request.headers_mut().insert(name, HeaderValue::from_static(value));
}

/// What a bad request to List gets.
async fn refused(change: impl FnOnce(&mut http::Request<Body>)) -> Reply {
    let fake = Fake::replying(b"");
    let (server, mut client) = started(&fake).await;
    let reply = client.ask(LIST, change).await;
    assert!(fake.asked.lock().unwrap().is_empty(), "a bad request went through");
    // The connection is none the worse for it.
    client.ask(LIST, |_| {}).await.assert_ok(b"\0\0\0\0\0");
    server.stop().await;
    reply
}

#[tokio::test]
async fn an_error_is_headers_alone_with_its_text_to_the_letter() {
    let text = "pod a in namespace b not found: 100% “gone”\n";
    let (server, mut client) = started(&Fake::failing(Code::Unknown, text)).await;
    let reply = client.ask(GET, |request| *request.body_mut() = get("b", "a")).await;
    assert_eq!(reply.error(), (Code::Unknown, text.into()));
    assert_eq!(reply.http, StatusCode::OK);
    assert_eq!(server.serving.stats().calls(Some(Method::Get), Code::Unknown), 1);
    server.stop().await;
}

#[tokio::test]
async fn unknown_methods_services_and_paths_are_unimplemented() {
    let (server, mut client) = started(&Fake::replying(b"")).await;
    for (path, text) in [
        ("/v1.PodResourcesLister/Watch", "unknown method Watch for service v1.PodResourcesLister"),
        ("/v1alpha2.PodResourcesLister/List", "unknown service v1alpha2.PodResourcesLister"),
        ("/", "malformed method name: \"/\""),
    ] {
        assert_eq!(client.ask(path, |_| {}).await.error(), (Code::Unimplemented, text.into()));
    }
    assert_eq!(server.serving.stats().calls(None, Code::Unimplemented), 3);
    server.stop().await;
}

#[tokio::test]
async fn a_content_type_that_is_not_grpc_is_http_415() {
    for wrong in [Some("application/json"), Some("application/grpc-web"), None] {
        let reply = refused(|request| match wrong {
            Some(wrong) => header(request, "content-type", wrong),
            None => drop(request.headers_mut().remove("content-type")),
        })
        .await;
        assert_eq!(reply.http, StatusCode::UNSUPPORTED_MEDIA_TYPE);
        let text = format!("invalid gRPC request content-type {:?}; expected application/grpc", wrong.unwrap_or_default());
        assert_eq!(reply.error(), (Code::InvalidArgument, text));
    }
}

#[tokio::test]
async fn a_request_that_is_no_post_is_http_405() {
    let reply = refused(|request| *request.method_mut() = Verb::GET).await;
    assert_eq!(reply.http, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(reply.headers["allow"], "POST");
    assert_eq!(reply.headers["content-type"], "text/plain; charset=utf-8");
    assert!(reply.body.starts_with(b"This is a gRPC server"), "{reply:?}");
}

#[tokio::test]
async fn a_compressed_request_is_told_what_would_be_accepted() {
    let reply = refused(|request| header(request, "grpc-encoding", "gzip")).await;
    assert_eq!(reply.headers["grpc-accept-encoding"], "identity");
    let text = "grpc: Decompressor is not installed for grpc-encoding \"gzip\"";
    assert_eq!(reply.error(), (Code::Unimplemented, text.into()));
}

#[tokio::test]
async fn encoding_identity_is_no_compression() {
    let (server, mut client) = started(&Fake::replying(b"")).await;
    client.ask(LIST, |request| header(request, "grpc-encoding", "identity")).await.assert_ok(b"\0\0\0\0\0");
    server.stop().await;
}

#[tokio::test]
async fn a_malformed_timeout_is_refused_with_what_is_wrong_about_it() {
    let reply = refused(|request| header(request, "grpc-timeout", "123456789S")).await;
    let text = "malformed grpc-timeout: timeout \"123456789S\" is too long; at most 8 digits and a unit are allowed";
    assert_eq!(reply.error(), (Code::Internal, text.into()));
}

#[tokio::test]
async fn bodies_that_are_not_one_message_are_internal_errors_that_say_why() {
    for (body, text) in [
        (&b""[..], "the request carries no message; a unary call has exactly one"),
        (b"\0\0\0", "the request message is cut off: 3 bytes came of 5"),
        (b"\0\0\0\0\x09abc", "the request message is cut off: 8 bytes came of 14"),
        (b"\0\0\0\0\0\0\0\0\0\0", "the request carries more than one message; a unary call has exactly one"),
        (b"\x01\0\0\0\0", "grpc: compressed flag set with identity or empty encoding"),
        (b"\x07\0\0\0\0", "the request message begins with flag 7; only 0 (not compressed) is understood"),
    ] {
        assert_eq!(refused(|request| *request.body_mut() = full(body)).await.error(), (Code::Internal, text.into()));
    }
}

#[tokio::test]
async fn a_message_that_is_not_protobuf_is_an_internal_error() {
    for path in [LIST, ALLOCATABLE, GET, ALPHA_LIST] {
        let (server, mut client) = started(&Fake::replying(b"")).await;
        let reply = client.ask(path, |request| *request.body_mut() = full(b"\0\0\0\0\x03\xff\xff\xff")).await;
        let (code, text) = reply.error();
        assert_eq!(code, Code::Internal);
        assert!(text.starts_with("grpc: error unmarshalling request: "), "{text}");
        server.stop().await;
    }
}

#[tokio::test]
async fn unknown_fields_in_a_request_do_no_harm() {
    let (server, mut client) = started(&Fake::replying(b"")).await;
    client.ask(LIST, |request| *request.body_mut() = full(b"\0\0\0\0\x03\x7a\x01x")).await.assert_ok(b"\0\0\0\0\0");
    server.stop().await;
}

#[tokio::test]
async fn a_request_over_the_limit_is_refused_at_its_prefix_already() {
    let (send, body) = piecemeal();
    send.send(b"\0\0\0\x10\x01").unwrap();
    // The message itself never comes, and the request never ends.
    let reply = refused(|request| *request.body_mut() = body).await;
    assert_eq!(reply.error(), (Code::ResourceExhausted, "grpc: received message larger than max (4097 vs. 4096)".into()));
    drop(send);
}

#[tokio::test]
async fn a_request_that_does_not_come_whole_ends_at_its_time() {
    let fake = Fake::replying(b"");
    let server = Running::with(&fake, |config| config.serving.limits.request_time = Duration::from_millis(20));
    let mut client = Client::connect(&server.path()).await.unwrap();
    let (send, body) = piecemeal();
    send.send(b"\0\0").unwrap();
    let reply = client.ask(LIST, |request| *request.body_mut() = body).await;
    let text = "the request message did not arrive whole within 20ms";
    assert_eq!(reply.error(), (Code::DeadlineExceeded, text.into()));
    assert!(fake.asked.lock().unwrap().is_empty());
    server.stop().await;
}
