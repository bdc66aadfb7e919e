//! What may be asked at which door, and the answers.

use std::fmt::Display;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use tokio::time::Instant;

use super::Parts;
use super::metrics::Format;

/// Who came, and through which door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Visitor {
    /// Through the TCP door.
    Anyone,
    /// Through the socket; root, or our own uid.
    Root { uid: u32 },
    /// Through the socket, with no right to.
    Stranger { uid: u32 },
}

#[derive(Clone, Copy, Debug)]
enum Page {
    Index,
    Health,
    Readiness,
    Metrics,
    Status,
    Clients,
    Config,
    LogLevel,
    Source,
}

struct Route {
    path: &'static str,
    page: Page,
    about: &'static str,
    /// Only at the socket.
    private: bool,
    /// `PUT` changes something; everything answers `GET` and `HEAD`.
    put: bool,
}

type Answer = Response<Full<Bytes>>;

/// Longest body of a request, in bytes.
const BODY_MAX: usize = 1024;
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TOML: HeaderValue = HeaderValue::from_static("application/toml");

const ROUTES: [Route; 9] = [
    Route { path: "/", page: Page::Index, about: "this list", private: false, put: false },
    Route { path: "/healthz", page: Page::Health, about: "200 while the threads give signs of life", private: false, put: false },
    Route { path: "/readyz", page: Page::Readiness, about: "200 when ready, else what is waited for", private: false, put: false },
    Route { path: "/metrics", page: Page::Metrics, about: "for Prometheus", private: false, put: false },
    Route { path: "/status", page: Page::Status, about: "everything at a glance, as JSON", private: true, put: false },
    Route { path: "/clients", page: Page::Clients, about: "who asks and what they may have, as JSON", private: true, put: false },
    Route { path: "/config", page: Page::Config, about: "the configuration in force, as TOML", private: true, put: false },
    Route { path: "/loglevel", page: Page::LogLevel, about: "the log's level; PUT sets it", private: true, put: true },
    Route { path: "/source", page: Page::Source, about: "auto, kubelet or host; PUT sets it", private: true, put: true },
];

// === impl Visitor ===

impl Visitor {
    /// Sorts a peer of the socket (`SO_PEERCRED`).
    pub(super) fn from_uid(uid: u32) -> Self {
        if uid == 0 || uid == rustix::process::geteuid().as_raw() { Self::Root { uid } } else { Self::Stranger { uid } }
    }

    fn sees(self, route: &Route) -> bool {
        match self {
            Self::Anyone => !route.private,
            Self::Root { .. } => true,
            Self::Stranger { .. } => false,
        }
    }
}

// === impl Route ===

impl Route {
    fn allows(&self, method: &Method) -> bool {
        *method == Method::GET || *method == Method::HEAD || (self.put && *method == Method::PUT)
    }

    fn allow(&self) -> HeaderValue {
        HeaderValue::from_static(if self.put { "GET, HEAD, PUT" } else { "GET, HEAD" })
    }
}

// === answers ===

/// Answers one request.
pub(super) async fn answer(parts: &Parts, visitor: Visitor, request: Request<Incoming>) -> Answer {
    if let Visitor::Stranger { uid } = visitor {
        return text(
            StatusCode::FORBIDDEN,
            format!("uid {uid} may not ask here: only root and the user that runs the proxy may\n"),
        );
    }
    let path = request.uri().path();
    let Some(route) = ROUTES.iter().find(|route| route.path == path && visitor.sees(route)) else {
        return text(StatusCode::NOT_FOUND, format!("nothing at {path}; there is:\n{}", index(visitor)));
    };
    if !route.allows(request.method()) {
        let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, format!("{} does not take {}\n", route.path, request.method()));
        answer.headers_mut().insert(header::ALLOW, route.allow());
        return answer;
    }
    match route.page {
        Page::Index => text(StatusCode::OK, format!("podresources-proxy {}\n{}", env!("CARGO_PKG_VERSION"), index(visitor))),
        Page::Health => health(parts),
        Page::Readiness => readiness(parts),
        Page::Metrics => metrics(parts, request.headers()),
        Page::Status => json(&(parts.status)()),
        Page::Clients => json(&(parts.clients)()),
        Page::Config => page(StatusCode::OK, TOML, (parts.config)()),
        Page::LogLevel if *request.method() == Method::PUT => set_log_level(parts, visitor, request.into_body()).await,
        Page::LogLevel => text(StatusCode::OK, parts.log_level.get() + "\n"),
        Page::Source if *request.method() == Method::PUT => set_source(parts, visitor, request.into_body()).await,
        Page::Source => said((parts.source)(None)),
    }
}

fn health(parts: &Parts) -> Answer {
    let late = parts.heartbeats.late(Instant::now());
    if late.is_empty() {
        return text(StatusCode::OK, "ok\n");
    }
    text(StatusCode::SERVICE_UNAVAILABLE, lines(late))
}

fn readiness(parts: &Parts) -> Answer {
    let report = parts.readiness.report();
    let notes = lines(report.notes.iter().map(|note| format!("note: {note}")));
    if report.ready {
        return text(StatusCode::OK, format!("ready\n{notes}"));
    }
    text(StatusCode::SERVICE_UNAVAILABLE, lines(report.waiting_for) + &notes)
}

fn metrics(parts: &Parts, headers: &HeaderMap) -> Answer {
    let accept: Vec<&str> = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    let format = Format::wanted(&accept.join(","));
    match parts.metrics.encode(format) {
        Ok(body) => page(StatusCode::OK, HeaderValue::from_static(format.content_type()), body),
        Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "a collector could not write its metrics\n"),
    }
}

fn json(page_of: &impl serde::Serialize) -> Answer {
    match serde_json::to_string_pretty(page_of) {
        Ok(json) => page(StatusCode::OK, JSON, json + "\n"),
        Err(e) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("the page could not be written: {e}\n")),
    }
}

/// The body of a PUT; what it should be has a name.
async fn body_of(body: Incoming, what: &str) -> Result<Bytes, Answer> {
    match Limited::new(body, BODY_MAX).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(e) if e.is::<LengthLimitError>() => {
            Err(text(StatusCode::PAYLOAD_TOO_LARGE, format!("{what} has at most {BODY_MAX} bytes\n")))
        }
        Err(e) => Err(text(StatusCode::BAD_REQUEST, format!("the request's body could not be read: {e}\n"))),
    }
}

async fn set_source(parts: &Parts, visitor: Visitor, body: Incoming) -> Answer {
    let body = match body_of(body, "a source").await {
        Ok(body) => body,
        Err(answer) => return answer,
    };
    let wish = String::from_utf8_lossy(&body);
    let set = (parts.source)(Some(wish.trim()));
    if let Ok(now) = &set {
        tracing::info!(source = now, ?visitor, "source set");
    }
    said(set)
}

fn said(result: Result<String, String>) -> Answer {
    match result {
        Ok(said) => text(StatusCode::OK, said + "\n"),
        Err(reason) => text(StatusCode::BAD_REQUEST, reason + "\n"),
    }
}

async fn set_log_level(parts: &Parts, visitor: Visitor, body: Incoming) -> Answer {
    let body = match body_of(body, "a log level").await {
        Ok(body) => body,
        Err(answer) => return answer,
    };
    let set = match std::str::from_utf8(&body).map(str::trim) {
        Ok("") => Err("the body must be the level to set, such as info or podresources_proxy=debug".to_owned()),
        Ok(level) => parts.log_level.set(level),
        Err(_) => Err("the level is not UTF-8".to_owned()),
    };
    match set {
        Ok(()) => {
            let level = parts.log_level.get();
            tracing::info!(%level, ?visitor, "log level set");
            text(StatusCode::OK, level + "\n")
        }
        Err(reason) => text(StatusCode::BAD_REQUEST, format!("{reason}\nstill in force: {}\n", parts.log_level.get())),
    }
}

/// The paths behind this door, one a line.
fn index(visitor: Visitor) -> String {
    lines(ROUTES.iter().filter(|route| visitor.sees(route)).map(|route| format!("{:<10} {}", route.path, route.about)))
}

fn lines(items: impl IntoIterator<Item: Display>) -> String {
    items.into_iter().flat_map(|item| [item.to_string(), "\n".to_owned()]).collect()
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    page(status, TEXT, body)
}

fn page(status: StatusCode, content_type: HeaderValue, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, content_type);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_and_our_own_uid_are_let_in_and_nobody_else() {
        let ours = rustix::process::geteuid().as_raw();
        assert_eq!(Visitor::from_uid(0), Visitor::Root { uid: 0 });
        assert_eq!(Visitor::from_uid(ours), Visitor::Root { uid: ours });
        assert_eq!(Visitor::from_uid(ours + 1), Visitor::Stranger { uid: ours + 1 });
        assert!(ROUTES.iter().all(|route| !Visitor::Stranger { uid: 7 }.sees(route)));
        assert!(ROUTES.iter().all(|route| !(route.put && Visitor::Anyone.sees(route))), "nothing changes anything on TCP");
    }
}
