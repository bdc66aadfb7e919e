//! A gRPC request: the message is the same however it was cut, and what clients put into headers is read or refused.

use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use podresources_proxy::answer::Ask;
use podresources_proxy::fuzzing::{ask, max_age};
use podresources_proxy::grpc::{Code, Status, Unary, UnaryError, encode_message, is_grpc, parse_timeout};
use podresources_proxy::proto::v1;
use podresources_proxy::serve::Method;
use prost::Message as _;

use super::source::Source;

/// The largest message that is taken, in bytes.
const LIMIT: usize = 300;

pub(crate) fn check(input: &[u8]) {
    let mut source = Source(input);
    match source.below(5) {
        0 => message(&mut source),
        1 => get(source.0),
        2 => timeout(source.0),
        3 => age(source.0),
        _ => text(source.0),
    }
}

fn message(source: &mut Source<'_>) {
    let cuts = [source.byte(), source.byte()].map(|cut| usize::from(cut) + 1);
    let mut bytes = source.0.to_vec();
    // Mostly a length that fits.
    if cuts[0] < 200 && bytes.len() >= 5 {
        let len = u32::try_from(bytes.len() - 5).unwrap();
        bytes[..5].copy_from_slice(&[&[0][..], &len.to_be_bytes()].concat());
    }
    let whole = collected(&mut bytes.chunks(bytes.len().max(1)));
    let expected =
        match bytes.get(..5).map(|prefix| (prefix[0], u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize)) {
            None if bytes.is_empty() => Err(UnaryError::Missing),
            None => Err(UnaryError::CutOff { have: bytes.len(), need: 5 }),
            Some((1, _)) => Err(UnaryError::Compressed),
            Some((flag @ 2.., _)) => Err(UnaryError::Flag(flag)),
            Some((0, len)) if len > LIMIT => Err(UnaryError::TooLarge { len, limit: LIMIT }),
            Some((0, len)) if bytes.len() - 5 > len => Err(UnaryError::TooMany),
            Some((0, len)) if bytes.len() - 5 < len => Err(UnaryError::CutOff { have: bytes.len(), need: 5 + len }),
            Some((0, _)) => Ok(Bytes::copy_from_slice(&bytes[5..])),
        };
    assert_eq!(whole, expected);
    let (first, rest) = bytes.split_at(cuts[0].min(bytes.len()));
    assert_eq!(collected(&mut std::iter::once(first).chain(rest.chunks(cuts[1]))), expected);
    if let Err(error) = whole {
        assert!(matches!(Status::from(error).code, Code::Internal | Code::ResourceExhausted));
    }
}

fn collected(pieces: &mut dyn Iterator<Item = &[u8]>) -> Result<Bytes, UnaryError> {
    let mut unary = Unary::new(LIMIT);
    for piece in pieces {
        unary.push(Bytes::copy_from_slice(piece))?;
    }
    unary.finish()
}

fn get(message: &[u8]) {
    let message = Bytes::copy_from_slice(message);
    let refusal = |status: &Status| {
        assert_eq!(status.code, Code::Internal);
        let sent = encode_message(&status.message);
        assert!(sent.len() < 1000 && HeaderValue::from_str(&sent).is_ok(), "{sent}");
    };
    match ask(Method::Get, message.clone()) {
        Ok(Ask::Get { namespace, name }) => {
            let again = v1::GetPodResourcesRequest { pod_namespace: namespace.clone(), pod_name: name.clone() }.encode_to_vec();
            assert_eq!(ask(Method::Get, again.into()), Ok(Ask::Get { namespace, name }));
        }
        Ok(other) => panic!("a Get was read as {other:?}"),
        Err(status) => refusal(&status),
    }
    for (method, asked) in [(Method::List, Ask::List), (Method::Allocatable, Ask::Allocatable), (Method::AlphaList, Ask::AlphaList)]
    {
        match ask(method, message.clone()) {
            Ok(found) => assert_eq!(found, asked),
            Err(status) => refusal(&status),
        }
    }
}

fn timeout(value: &[u8]) {
    let read = parse_timeout(value);
    let plain = std::str::from_utf8(value).ok().and_then(|text| {
        let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
        let count: u64 = digits.parse().ok().filter(|_| digits.len() <= 8 && !digits.starts_with('+'))?;
        let nanos = match unit {
            "H" => 3_600_000_000_000,
            "M" => 60_000_000_000,
            "S" => 1_000_000_000,
            "m" => 1_000_000,
            "u" => 1_000,
            "n" => 1_u128,
            _ => return None,
        };
        Some(nanos * u128::from(count))
    });
    assert_eq!(read.as_ref().ok().map(Duration::as_nanos), plain);
    if let Err(error) = read {
        assert!(error.to_string().len() < 200, "{error}");
    }
}

fn age(value: &[u8]) {
    let Ok(value) = HeaderValue::from_bytes(value) else { return };
    match max_age(&value) {
        Ok(age) => assert!(age.is_some(), "{value:?} says nothing"),
        Err(status) => {
            assert_eq!(status.code, Code::InvalidArgument);
            let sent = encode_message(&status.message);
            assert!(sent.len() < 2000 && HeaderValue::from_str(&sent).is_ok(), "{sent}");
        }
    }
}

fn text(text: &[u8]) {
    let kind = is_grpc(text);
    assert_eq!(kind, is_grpc(&text.to_ascii_uppercase()));
    let text = String::from_utf8_lossy(text);
    let sent = encode_message(&text);
    assert!(sent.bytes().all(|byte| (0x20..0x7f).contains(&byte)), "{sent:?}");
    assert_eq!(percent_encoding::percent_decode_str(&sent).decode_utf8().unwrap(), text);
}
