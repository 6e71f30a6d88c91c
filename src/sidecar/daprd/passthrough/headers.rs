//! Hop-by-hop headers, which must not be passed on (RFC 9110, 7.6.1).

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{
        CONNECTION, COOKIE, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING,
        UPGRADE,
    },
};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");

/// Removes hop-by-hop headers, those that `Connection` names included.
pub(super) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    let trailers_taken = takes_trailers(headers);
    for name in [
        CONNECTION,
        KEEP_ALIVE,
        PROXY_CONNECTION,
        PROXY_AUTHENTICATE,
        PROXY_AUTHORIZATION,
        HTTP2_SETTINGS,
        TE,
        TRANSFER_ENCODING,
        UPGRADE,
    ] {
        headers.remove(name);
    }
    if trailers_taken {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
}

/// Joins the cookies of a request into one header. HTTP/2 may split them, and
/// HTTP/1 takes one only (RFC 9113, 8.2.3).
pub(super) fn join_cookies(headers: &mut HeaderMap) {
    let crumbs: Vec<_> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if crumbs.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&crumbs.join(&b"; "[..]))
    {
        headers.insert(COOKIE, joined);
    }
}

/// The protocol that a request demands to upgrade to. An offer of HTTP/2, which
/// some clients make with every request, may be ignored.
pub(super) fn demanded_upgrade(headers: &HeaderMap) -> Option<&str> {
    headers
        .get_all(UPGRADE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .find(|protocol| !protocol.is_empty() && !protocol.eq_ignore_ascii_case("h2c"))
}

fn takes_trailers(headers: &HeaderMap) -> bool {
    headers
        .get_all(TE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|coding| coding.trim().eq_ignore_ascii_case("trailers"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| {
                (HeaderName::from_static(name), HeaderValue::from_static(value))
            })
            .collect()
    }

    #[test]
    fn cookies_that_http2_split_are_one_header_again() {
        let mut split = HeaderMap::new();
        for crumb in ["a=1", "b=2; c=3"] {
            split.append(COOKIE, HeaderValue::from_static(crumb));
        }
        join_cookies(&mut split);
        let joined: Vec<_> = split.get_all(COOKIE).iter().collect();
        assert_eq!(joined, ["a=1; b=2; c=3"]);
    }

    #[test]
    fn only_what_concerns_the_connection_is_removed() {
        let mut all = headers(&[
            ("connection", "close, X-Mine"),
            ("x-mine", "1"),
            ("keep-alive", "timeout=5"),
            ("te", "gzip, trailers"),
            ("transfer-encoding", "chunked"),
            ("x-yours", "2"),
            ("host", "app"),
            ("dapr-api-token", "t"),
        ]);
        strip_hop_by_hop(&mut all);
        let left = headers(&[
            ("te", "trailers"),
            ("x-yours", "2"),
            ("host", "app"),
            ("dapr-api-token", "t"),
        ]);
        assert_eq!(all, left);
    }

    #[test]
    fn an_offer_of_http2_is_no_demand() {
        assert_eq!(demanded_upgrade(&headers(&[("upgrade", "h2c")])), None);
        assert_eq!(
            demanded_upgrade(&headers(&[("upgrade", "h2c, websocket")])),
            Some("websocket")
        );
        assert_eq!(demanded_upgrade(&headers(&[])), None);
    }
}
