//! Secrets for component YAML, from the daprd behind the sidecar.

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use axum::body::Body;
use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use leasehold_manifest::{SecretError, Secrets};
use leasehold_proto::sidecar::TOKEN_HEADER;
use leasehold_util::error_chain::chain;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use tokio::time::{Instant, sleep, timeout};
use tracing::info;

use super::passthrough::{Endpoint, PassingClient, http1_client};
use crate::usage::UsageError;

/// The characters that are percent-encoded in a path and a query.
const ENCODED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
const ANSWER_BYTES_MAX: usize = 1024 * 1024;
/// How long an answer of daprd may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How long to wait until daprd listens: in a pod it often starts after the
/// sidecar.
const LISTENS_WITHIN: Duration = Duration::from_secs(30);
/// The delay between two tries to connect.
const PAUSE: Duration = Duration::from_millis(250);
/// Longest error text shown, in characters.
const MESSAGE_CHARS_MAX: usize = 300;

/// Reads secrets from daprd's HTTP API. `Debug` does not show the token.
pub struct DaprdSecrets {
    endpoint: Endpoint,
    client: PassingClient,
    token: Option<HeaderValue>,
    listens_within: Duration,
}

/// Why there is no answer.
enum NoAnswer {
    /// Nothing was sent.
    NotListening(String),
    Other(String),
}

impl DaprdSecrets {
    /// Reads from the daprd at `endpoint`, with its API token if it needs one.
    /// A token that is no valid header value is refused.
    pub fn new(endpoint: Endpoint, token: Option<&str>) -> Result<Self, UsageError> {
        let client = http1_client(&endpoint)?;
        let token = token.filter(|token| !token.is_empty());
        let token = token.map(HeaderValue::from_str).transpose().map_err(|_| {
            endpoint.refuse("cannot be asked: DAPR_API_TOKEN is no header value")
        })?;
        let token = token.map(|mut token| {
            token.set_sensitive(true);
            token
        });
        Ok(Self { endpoint, client, token, listens_within: LISTENS_WITHIN })
    }

    async fn ask(&self, path: &str) -> Result<(StatusCode, Bytes), NoAnswer> {
        let url = self.endpoint.url(path);
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = url.map_err(|error| NoAnswer::Other(error.to_string()))?;
        if let Some(token) = &self.token {
            request.headers_mut().insert(TOKEN_HEADER, token.clone());
        }
        let answer = self.client.request(request).await.map_err(|error| {
            let why = chain(&error);
            if error.is_connect() { NoAnswer::NotListening(why) } else { NoAnswer::Other(why) }
        })?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| NoAnswer::Other(error.to_string()))?;
        Ok((status, body.to_bytes()))
    }

    /// Sends the request; waits until daprd listens.
    async fn ask_once_it_listens(&self, path: &str) -> Result<(StatusCode, Bytes), String> {
        let give_up = Instant::now() + self.listens_within;
        let mut is_logged = false;
        loop {
            match timeout(TIMEOUT, self.ask(path)).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(NoAnswer::NotListening(_))) if Instant::now() < give_up => {}
                Ok(Err(NoAnswer::NotListening(why))) => {
                    return Err(format!("{why}; start it, or correct the flag"));
                }
                Ok(Err(NoAnswer::Other(why))) => return Err(why),
                Err(_) => return Err(format!("no answer within {TIMEOUT:?}")),
            }
            if !is_logged {
                let within = self.listens_within;
                info!(daprd = %self.endpoint, ?within, "waiting for daprd to ask it for secrets");
                is_logged = true;
            }
            sleep(PAUSE).await;
        }
    }
}

#[async_trait]
impl Secrets for DaprdSecrets {
    async fn secret(
        &self,
        store: &str,
        name: &str,
        namespace: &str,
    ) -> Result<BTreeMap<String, String>, SecretError> {
        let encode = |text| utf8_percent_encode(text, ENCODED);
        let mut path = format!("/v1.0/secrets/{}/{}", encode(store), encode(name));
        if !namespace.is_empty() {
            path += &format!("?metadata.namespace={}", encode(namespace));
        }
        let fail = |why: &str, may_pass| SecretError {
            why: format!("daprd at {}: {why}", self.endpoint),
            may_pass,
        };
        let answer = self.ask_once_it_listens(&path).await;
        let (status, body) = answer.map_err(|why| fail(&why, true))?;
        match status {
            StatusCode::OK => serde_json::from_slice(&body)
                .map_err(|_| fail("the answer is no JSON object of texts", false)),
            StatusCode::NO_CONTENT => Ok(BTreeMap::new()),
            // Dapr answers 500 for a secret that does not exist and for a vault that is down.
            _ => Err(fail(&refusal(status, &body), status.is_server_error())),
        }
    }
}

impl std::fmt::Debug for DaprdSecrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DaprdSecrets").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

/// Dapr's error, if the body is one.
fn refusal(status: StatusCode, body: &[u8]) -> String {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct DaprError {
        error_code: String,
        #[serde(default)]
        message: String,
    }
    let text = match serde_json::from_slice::<DaprError>(body) {
        Ok(error) => format!("{}: {}", error.error_code, error.message),
        Err(_) => String::from_utf8_lossy(body).into_owned(),
    };
    let text: String = text.chars().take(MESSAGE_CHARS_MAX).collect();
    format!("{status}: {text}")
}

#[cfg(test)]
mod tests {
    use axum::{
        Json, Router,
        extract::{OriginalUri, Request},
        response::IntoResponse as _,
    };
    use serde_json::json;
    use tokio::net::TcpListener;

    use super::*;

    /// A daprd that knows one secret, `s/1` of the store `my vault`.
    async fn daprd() -> String {
        serve(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    fn serve(listener: TcpListener) -> String {
        let router = Router::new().fallback(
            |OriginalUri(uri): OriginalUri, request: Request| async move {
                if request.headers().get("dapr-api-token").is_none_or(|token| token != "t") {
                    return (StatusCode::UNAUTHORIZED, "invalid api token").into_response();
                }
                match uri.to_string().as_str() {
                    "/v1.0/secrets/my%20vault/s%2F1?metadata.namespace=n%26m" => {
                        Json(json!({ "password": "hunter2" })).into_response()
                    }
                    "/v1.0/secrets/v/empty" => StatusCode::NO_CONTENT.into_response(),
                    "/v1.0/secrets/v/odd" => Json(json!([1])).into_response(),
                    _ => {
                        let error = json!({ "errorCode": "ERR_SECRET_GET", "message": "none" });
                        (StatusCode::INTERNAL_SERVER_ERROR, Json(error)).into_response()
                    }
                }
            },
        );
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async { axum::serve(listener, router).await.unwrap() });
        address
    }

    fn secrets(address: &str, token: &str) -> DaprdSecrets {
        let endpoint = Endpoint::parse("--daprd-http-endpoint", address).unwrap();
        DaprdSecrets::new(endpoint, Some(token)).unwrap()
    }

    #[tokio::test]
    async fn a_secret_is_had_by_its_encoded_name_and_namespace() {
        let secrets = secrets(&daprd().await, "t");
        let secret = secrets.secret("my vault", "s/1", "n&m").await.unwrap();
        assert_eq!(secret["password"], "hunter2");
        assert!(secrets.secret("v", "empty", "").await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_refusal_of_daprd_is_reported_with_its_code_and_the_endpoint() {
        let address = daprd().await;
        for (token, name, why, may_pass) in [
            ("t", "x", "ERR_SECRET_GET: none", true),
            ("t", "odd", "no JSON", false),
            ("u", "x", "401", false),
        ] {
            let error = secrets(&address, token).secret("v", name, "").await.unwrap_err();
            assert!(error.why.contains(why), "{error}");
            assert!(error.why.contains("--daprd-http-endpoint"), "{error}");
            assert_eq!(error.may_pass, may_pass, "{error}");
        }
    }

    #[tokio::test]
    async fn a_daprd_that_is_down_is_reported_without_the_token() {
        let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let mut secrets = secrets(&nobody.to_string(), "hidden-token");
        secrets.listens_within = Duration::ZERO;
        let error = secrets.secret("v", "x", "").await.unwrap_err();
        assert!(error.why.contains(&nobody.to_string()), "{error}");
        assert!(error.why.contains("Connection refused") && error.may_pass, "{error}");
        assert!(!format!("{secrets:?}{error}").contains("hidden-token"));
    }

    #[tokio::test]
    async fn a_daprd_that_listens_later_is_waited_for() {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        // Bound, so that nobody else takes the port, but not listening yet.
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = socket.local_addr().unwrap().to_string();
        let secrets = secrets(&address, "t");
        let mut asked = tokio::spawn(async move { secrets.secret("v", "empty", "").await });
        assert!(timeout(PAUSE * 2, &mut asked).await.is_err(), "it did not wait");
        serve(socket.listen(16).unwrap());
        assert!(asked.await.unwrap().unwrap().is_empty());
    }
}
