//! Lock calls from pages in a browser: refused, unless their origin is allowed.
//!
//! A page of any site may send requests to ports of the machine that its
//! browser runs on, also by a name of its own that resolves there. Browsers say
//! where a request comes from, and which name it was sent to; other clients of
//! the Dapr API name a loopback address and no origin.

use std::{collections::HashMap, net::IpAddr, str::FromStr, sync::Arc};

use axum::{
    Json,
    body::Body,
    extract::{Request, State},
    http::{
        HeaderMap, HeaderName, HeaderValue, Method, StatusCode,
        header::{
            ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
            ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS,
            ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, HOST, ORIGIN,
            RETRY_AFTER, VARY,
        },
        uri::{Authority, Uri},
    },
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use serde_json::json;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use super::{alpha1::FENCING_TOKEN, paths};
use crate::net::status::DOMAIN;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const REASON: &str = "FORBIDDEN_ORIGIN";

/// The origin of pages, as browsers write it: `http://localhost:8080`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin(String);

impl FromStr for Origin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused =
            || "it is no origin; write it as browsers do: http://localhost:8080".to_owned();
        let text = text.trim().trim_end_matches('/').to_ascii_lowercase();
        let uri: Uri = text.parse().map_err(|_| refused())?;
        let is_whole =
            uri.scheme().is_some() && uri.host().is_some_and(|host| !host.is_empty());
        if !is_whole || uri.path().len() > 1 || uri.query().is_some() || text.contains('@') {
            return Err(refused());
        }
        let default_port = match uri.scheme_str() {
            Some("http") => ":80",
            Some("https") => ":443",
            _ => "",
        };
        Ok(Self(text.strip_suffix(default_port).unwrap_or(&text).to_owned()))
    }
}

/// A name by which the sidecar is called, without port, case or trailing dot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostName(String);

impl FromStr for HostName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || {
            "it is no host name; write one such as sidecar.internal (there is no wildcard)"
                .to_owned()
        };
        let authority: Authority = text.trim().parse().map_err(|_| refused())?;
        let host = authority.host().strip_suffix('.').unwrap_or(authority.host());
        if host.is_empty() || authority.as_str().contains(['@', '*']) {
            return Err(refused());
        }
        Ok(Self(host.to_ascii_lowercase()))
    }
}

impl HostName {
    /// Whether no resolver can have it stand for another machine.
    fn is_loopback(&self) -> bool {
        let address = self.0.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        match address {
            Ok(address) => address.to_canonical().is_loopback(),
            Err(_) => self.0 == "localhost" || self.0.ends_with(".localhost"),
        }
    }
}

/// What is allowed besides the usual.
#[derive(Clone, Debug, Default)]
pub struct Allowed {
    /// The origins whose pages may call.
    pub origins: Vec<Origin>,
    /// The names by which a sidecar on loopback may be called.
    pub hosts: Vec<HostName>,
}

/// Who can reach the listeners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// No browser: they are Unix sockets.
    Processes,
    /// This machine.
    Machine,
    /// Others too, by whatever names they have for it.
    Network,
}

/// Tells whose lock calls are refused. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    allowed: Arc<Allowed>,
    reach: Reach,
}

/// Why a call is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Refusal {
    #[error(
        "pages of {0:?} may not see, take or end locks; --lock-allowed-origins names the origins \
         that may"
    )]
    Origin(String),
    #[error(
        "{0:?} is no name of a loopback address; --allowed-hosts adds names by which this \
         sidecar may be called"
    )]
    Host(String),
}

impl Guard {
    pub(crate) fn new(allowed: Allowed, reach: Reach) -> Self {
        Self { allowed: Arc::new(allowed), reach }
    }

    fn check(&self, request: &Request) -> Result<(), Refusal> {
        if self.reach == Reach::Processes {
            return Ok(());
        }
        let headers = request.headers();
        let is_allowed = |origin: &&HeaderValue| {
            let origin = origin.to_str().ok().and_then(|origin| origin.parse().ok());
            origin.is_some_and(|origin| self.allowed.origins.contains(&origin))
        };
        if let Some(origin) = headers.get_all(ORIGIN).iter().find(|origin| !is_allowed(origin))
        {
            return Err(Refusal::Origin(text(origin)));
        }
        let is_own =
            |site: &&HeaderValue| [&b"none"[..], b"same-origin"].contains(&site.as_bytes());
        if !headers.contains_key(ORIGIN)
            && let Some(site) =
                headers.get_all(SEC_FETCH_SITE).iter().find(|site| !is_own(site))
        {
            return Err(Refusal::Origin(text(site)));
        }
        if self.reach == Reach::Machine {
            let authority = request.uri().authority().map(ToString::to_string);
            let hosts = headers.get_all(HOST).iter().map(text).chain(authority);
            for host in hosts {
                self.check_host(host)?;
            }
        }
        Ok(())
    }

    fn check_host(&self, host: String) -> Result<(), Refusal> {
        match host.parse::<HostName>() {
            Ok(name) if name.is_loopback() || self.allowed.hosts.contains(&name) => Ok(()),
            _ => Err(Refusal::Host(host)),
        }
    }
}

fn text(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

/// Refuses lock calls over HTTP, preflights included. Tells the browser of an
/// allowed origin that its page may have the answer.
pub(crate) async fn check_http(
    State(guard): State<Guard>,
    request: Request,
    next: Next,
) -> Response {
    if !paths::is_lock_call(request.uri().path()) {
        return next.run(request).await;
    }
    if let Err(refusal) = guard.check(&request) {
        return refuse_http(&refusal);
    }
    let origin = request.headers().get(ORIGIN).cloned();
    let Some(origin) = origin.filter(|_| guard.reach != Reach::Processes) else {
        return next.run(request).await;
    };
    let mut response = match preflight(&request) {
        Some(response) => response,
        None => next.run(request).await,
    };
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    for exposed in [HeaderName::from_static(FENCING_TOKEN), RETRY_AFTER] {
        headers.append(ACCESS_CONTROL_EXPOSE_HEADERS, exposed.into());
    }
    headers.append(VARY, HeaderValue::from_static("origin"));
    response
}

/// The answer to a browser that asks what a page may send.
fn preflight(request: &Request) -> Option<Response> {
    let asked = request.headers();
    if request.method() != Method::OPTIONS || !asked.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
    {
        return None;
    }
    let mut headers = HeaderMap::new();
    let methods = HeaderValue::from_static("GET, POST, PUT, DELETE");
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, methods);
    if let Some(names) = asked.get(ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
    }
    Some((StatusCode::NO_CONTENT, headers).into_response())
}

fn refuse_http(refusal: &Refusal) -> Response {
    let detail = json!({
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": REASON,
        "domain": DOMAIN,
        "metadata": {},
    });
    let body = json!({
        "errorCode": format!("ERR_{REASON}"),
        "message": refusal.to_string(),
        "details": [detail],
    });
    (StatusCode::FORBIDDEN, Json(body)).into_response()
}

/// Refuses lock calls over gRPC.
pub(crate) async fn check_grpc(
    State(guard): State<Guard>,
    request: Request,
    next: Next,
) -> Response {
    if !paths::is_lock_method(request.uri().path()) {
        return next.run(request).await;
    }
    match guard.check(&request) {
        Ok(()) => next.run(request).await,
        Err(refusal) => {
            let details = ErrorDetails::with_error_info(REASON, DOMAIN, HashMap::new());
            Status::with_error_details(Code::PermissionDenied, refusal.to_string(), details)
                .into_http::<Body>()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_compared_as_browsers_write_it() {
        let origin = |text: &str| text.parse::<Origin>();
        assert_eq!(origin("HTTP://LocalHost:8080/"), origin("http://localhost:8080"));
        assert_eq!(origin("https://a.example:443"), origin("https://a.example"));
        assert_ne!(origin("http://a.example"), origin("https://a.example"));
        assert!(origin("chrome-extension://abcdef").is_ok());
        for bad in ["", "*", "null", "localhost:8080", "http://", "http://a/b", "http://a?b"] {
            assert!(origin(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_host_is_compared_without_port_case_and_trailing_dot() {
        let host = |text: &str| text.parse::<HostName>().unwrap();
        assert_eq!(host("Sidecar.Internal.:3500"), host("sidecar.internal"));
        for local in [
            "localhost",
            "LOCALHOST.:3500",
            "a.b.localhost",
            "127.0.0.1:3500",
            "127.1.2.3",
            "[::1]:3500",
            "[::ffff:127.0.0.1]",
        ] {
            assert!(host(local).is_loopback(), "{local}");
        }
        for other in ["x", "0.0.0.0", "10.0.0.1", "[::]", "localhost.x", "notlocalhost"] {
            assert!(!host(other).is_loopback(), "{other}");
        }
        for bad in ["", ".", ":80", "a b", "a@localhost", "*.internal"] {
            assert!(bad.parse::<HostName>().is_err(), "{bad:?}");
        }
    }
}
