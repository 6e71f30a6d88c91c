//! What commands read from the environment.

use std::{
    env::{self, VarError},
    fs,
    time::Duration,
};

use leasehold_tools::ToolError;
use tonic::{
    metadata::{Ascii, MetadataValue},
    transport::{Channel, Endpoint},
};

const PASSWORD: &str = "LEASEHOLD_PASSWORD";
const PASSWORD_FILE: &str = "LEASEHOLD_PASSWORD_FILE";
/// The gRPC port of a sidecar if nothing names another.
const SIDECAR_PORT: &str = "50001";
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// A sidecar that stops answering is noticed within the sum of these.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PONG_WITHIN: Duration = Duration::from_secs(5);

/// The password of a store that is named by a URL.
pub(super) fn password() -> Result<Option<String>, ToolError> {
    match (set(PASSWORD)?, set(PASSWORD_FILE)?) {
        (Some(_), Some(_)) => Err(ToolError::usage(format!(
            "{PASSWORD} and {PASSWORD_FILE} are both set; unset one of them"
        ))),
        (password, None) => Ok(password),
        (None, Some(file)) => {
            let mut password = fs::read_to_string(&file).map_err(|error| {
                ToolError::usage(format!("{PASSWORD_FILE}: {file}: {error}"))
            })?;
            if password.ends_with('\n') {
                password.pop();
            }
            Ok(Some(password))
        }
    }
}

/// The gRPC port of the sidecar. It is connected at the first call.
pub(super) fn sidecar() -> Result<Channel, ToolError> {
    let endpoint = match set("DAPR_GRPC_ENDPOINT")? {
        Some(endpoint) => endpoint,
        None => {
            let port = set("DAPR_GRPC_PORT")?.unwrap_or_else(|| SIDECAR_PORT.into());
            if port.parse::<u16>().is_err() {
                return Err(ToolError::usage(format!("DAPR_GRPC_PORT: {port} is no port")));
            }
            format!("127.0.0.1:{port}")
        }
    };
    let wrong = |why: &str| ToolError::usage(format!("DAPR_GRPC_ENDPOINT: {endpoint}: {why}"));
    let uri = match endpoint.split_once("://") {
        Some(("http", _)) => endpoint.clone(),
        Some(_) => return Err(wrong("a sidecar is reached over http:// only")),
        None => format!("http://{endpoint}"),
    };
    let endpoint = Endpoint::from_shared(uri).map_err(|error| wrong(&error.to_string()))?;
    let endpoint = endpoint
        .connect_timeout(CONNECT_WITHIN)
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PONG_WITHIN);
    Ok(endpoint.connect_lazy())
}

/// The token that the sidecar asks for.
pub(super) fn api_token() -> Result<Option<MetadataValue<Ascii>>, ToolError> {
    let token = set("DAPR_API_TOKEN")?.map(|token| token.parse()).transpose();
    token.map_err(|_| ToolError::usage("DAPR_API_TOKEN cannot be a header's value"))
}

/// A variable, unless it is empty.
fn set(name: &str) -> Result<Option<String>, ToolError> {
    match env::var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(ToolError::usage(format!("{name} is not UTF-8"))),
    }
}
