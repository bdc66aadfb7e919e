//! What becomes of an empty `:authority`. `h2` refuses one, but not a missing one; and no field is without effect to it.
//!
//! As the last pseudo-header field, where grpc-go has it, it becomes a regular field that nobody looks at. Before that, it becomes the
//! `:scheme` or `:method` that every gRPC client will send later in one byte; when that comes, it is the one too many, and the same is
//! done with it.
//!
//! What stays refused: an empty one when of the others only `:path` is to come; a literal in any place but the last, or with its name
//! spelled out, or cut in two by a frame's end. No client is known to send these.

use super::table::Name;

/// Which pseudo-header fields a block has had.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Order {
    method: bool,
    scheme: bool,
    path: bool,
    /// The byte that was sent early.
    early: Option<u8>,
}

/// `:method: POST`, `:scheme: http` and `host:` (empty), by their index in the static table.
const METHOD_POST: u8 = 0x80 + 3;
const SCHEME_HTTP: u8 = 0x80 + 6;
const HOST_EMPTY: u8 = 0x80 + 38;

/// A literal to be inserted, named `set-cookie`: as long as `:authority`, so an entry of the same size. Nobody reads it in a request.
const INSERT_SET_COOKIE: u8 = 0x40 + 55;

// === impl Order ===

impl Order {
    pub(super) fn saw(&mut self, name: Name) {
        match name {
            Name::Method => self.method = true,
            Name::Scheme => self.scheme = true,
            Name::Path => self.path = true,
            Name::Authority | Name::Other => {}
        }
    }

    /// Whether this one-byte field was sent early already.
    pub(super) fn had(self, byte: u8) -> bool {
        self.early == Some(byte)
    }

    /// No pseudo-header field but `:authority` can follow.
    pub(super) fn at_end(self) -> bool {
        self.method && self.scheme && self.path
    }

    /// Puts something into the place of a one-byte field that must not be seen.
    pub(super) fn fill(&mut self, byte: &mut u8) {
        self.early = None;
        if self.at_end() {
            *byte = HOST_EMPTY;
        } else if !self.scheme {
            self.scheme = true;
            *byte = SCHEME_HTTP;
            self.early = Some(SCHEME_HTTP);
        } else if !self.method {
            self.method = true;
            *byte = METHOD_POST;
            self.early = Some(METHOD_POST);
        }
        // Only `:path` is to come, and its value is not known: left for `h2` to refuse.
    }

    /// The same for a literal of two bytes: the index of the name, and the value's length, which is zero.
    pub(super) fn fill_literal(self, insert: bool, first: &mut u8, second: &mut u8) {
        if !self.at_end() {
            return;
        }
        if insert {
            *first = INSERT_SET_COOKIE;
        } else {
            (*first, *second) = (HOST_EMPTY, HOST_EMPTY);
        }
    }
}
