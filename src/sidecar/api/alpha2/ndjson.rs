//! The stream over HTTP: one JSON object on each line.

use axum::{
    body::{Body, Bytes},
    http::{HeaderMap, HeaderValue, header},
    response::Response,
};
use futures_util::{Stream, StreamExt as _};
use leasehold_net::status::ErrorDescription;
use serde_json::{Value, json};

use super::{
    json::of_grant,
    status::HttpError,
    stream::{Event, Events},
};
use crate::api::error::ApiError;

const MEDIA_TYPE: &str = "application/x-ndjson";

/// Whether a request asks for the stream.
pub(super) fn is_wanted(headers: &HeaderMap) -> bool {
    headers.get_all(header::ACCEPT).iter().filter_map(|accept| accept.to_str().ok()).any(
        |accept| {
            accept.split(',').any(|range| {
                let media_type = range.split(';').next().unwrap_or_default();
                media_type.trim().eq_ignore_ascii_case(MEDIA_TYPE)
            })
        },
    )
}

/// The response that carries a lock's events.
pub(super) fn of_lock(events: Events) -> Response {
    response(events.map(|event| match event {
        Ok(event) => line(&event),
        Err(error) => failed(error),
    }))
}

/// The response that carries these objects.
pub(super) fn response(lines: impl Stream<Item = Value> + Send + 'static) -> Response {
    let lines = lines.map(|line| {
        let mut line = line.to_string();
        line.push('\n');
        Ok::<_, std::convert::Infallible>(Bytes::from(line))
    });
    let mut response = Response::new(Body::from_stream(lines));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn line(event: &Event) -> Value {
    match event {
        Event::Ping => json!({ "type": "ping" }),
        Event::Acquired(granted) => {
            let mut line = of_grant(granted);
            line["type"] = "lock-acquired".into();
            line
        }
    }
}

/// The last line of a stream that ends with an error.
pub(super) fn failed(error: ApiError) -> Value {
    let cause = match &error {
        ApiError::Lost(cause) => Some(cause.as_str()),
        _ => None,
    };
    let line = HttpError::of(&ErrorDescription::from(error));
    let mut line =
        json!({ "type": "error", "error": line.message, "errorCode": line.error_code });
    if let Some(cause) = cause {
        line["cause"] = cause.into();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_asked_for_by_its_media_type() {
        let wanted = |accept: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().unwrap());
            is_wanted(&headers)
        };
        assert!(wanted("application/x-ndjson"));
        assert!(wanted("text/html, Application/X-NDJSON;q=0.9"));
        assert!(!wanted("application/json") && !wanted("*/*") && !wanted(""));
        assert!(!is_wanted(&HeaderMap::new()));
    }
}
