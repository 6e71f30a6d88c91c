//! Refuses lock calls from pages in a browser. An app's server takes locks, not its page.
//!
//! A page of any site can send requests to ports of the machine that its
//! browser runs on, also under a host name of the site that resolves to that
//! machine. Browsers send the page's origin and the host name; other clients of
//! the Dapr API send a loopback address as host and no origin.

use std::net::IpAddr;

use axum::{
    extract::{Request, State},
    http::{
        HeaderName, HeaderValue,
        header::{HOST, ORIGIN},
        uri::Authority,
    },
    middleware::Next,
    response::Response,
};

use super::error::ApiError;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Who can reach the listeners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// No browser: they are Unix sockets.
    Processes,
    /// This machine.
    Machine,
    /// Other machines too, under host names that are not known here.
    Network,
}

/// Why a call is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Refusal {
    #[error(
        "{0:?}: a page in a browser may not see, take or end locks; let the app's server call \
         instead of its page"
    )]
    Page(String),
    #[error(
        "{0:?} is no name of a loopback address, so this may be a page in a browser; call \
         localhost or a loopback address, and let the app's server call instead of its page"
    )]
    Host(String),
}

impl Reach {
    fn check(self, request: &Request) -> Result<(), Refusal> {
        if self == Self::Processes {
            return Ok(());
        }
        let headers = request.headers();
        let is_own =
            |site: &&HeaderValue| [&b"none"[..], b"same-origin"].contains(&site.as_bytes());
        let sites = headers.get_all(SEC_FETCH_SITE).iter().filter(|site| !is_own(site));
        if let Some(page) = headers.get_all(ORIGIN).iter().chain(sites).next() {
            return Err(Refusal::Page(text(page)));
        }
        if self == Self::Machine {
            let authority = request.uri().authority().map(ToString::to_string);
            let mut hosts = headers.get_all(HOST).iter().map(text).chain(authority);
            if let Some(host) = hosts.find(|host| !is_loopback(host)) {
                return Err(Refusal::Host(host));
            }
        }
        Ok(())
    }
}

/// Whether the host can only be this machine, whatever a resolver answers.
fn is_loopback(host: &str) -> bool {
    let Ok(authority) = host.trim().parse::<Authority>() else { return false };
    let name = authority.host().to_ascii_lowercase();
    let name = name.strip_suffix('.').unwrap_or(&name);
    match name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_) => name == "localhost" || name.ends_with(".localhost"),
    }
}

fn text(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

/// Which calls are refused, and how.
#[derive(Clone, Copy)]
pub(crate) struct Guard {
    pub(crate) reach: Reach,
    /// Whether a path is that of a lock call.
    pub(crate) is_lock_call: fn(&str) -> bool,
    pub(crate) refuse: fn(ApiError) -> Response,
}

/// Refuses lock calls, preflights included.
pub(crate) async fn check(
    State(guard): State<Guard>,
    request: Request,
    next: Next,
) -> Response {
    if (guard.is_lock_call)(request.uri().path())
        && let Err(refusal) = guard.reach.check(&request)
    {
        return (guard.refuse)(ApiError::ForbiddenOrigin(refusal.to_string()));
    }
    next.run(request).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_compared_without_port_case_and_trailing_dot() {
        for local in [
            "localhost",
            "LOCALHOST.:3500",
            "a.b.localhost",
            "127.0.0.1:3500",
            "127.1.2.3",
            "[::1]:3500",
            "[::ffff:127.0.0.1]",
        ] {
            assert!(is_loopback(local), "{local}");
        }
        for other in [
            "x",
            "0.0.0.0",
            "10.0.0.1",
            "[::]",
            "localhost.x",
            "notlocalhost",
            "",
            ".",
            ":80",
            "a b",
            "localhost@x",
        ] {
            assert!(!is_loopback(other), "{other:?}");
        }
    }
}
