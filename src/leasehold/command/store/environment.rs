//! What commands read from the environment.

use std::{env, fs};

use leasehold_tools::ToolError;
use tonic::{
    metadata::{Ascii, MetadataValue},
    transport::{Channel, Endpoint},
};

const PASSWORD: &str = "LEASEHOLD_PASSWORD";
const PASSWORD_FILE: &str = "LEASEHOLD_PASSWORD_FILE";
/// The gRPC port of a sidecar if nothing names another.
const SIDECAR_PORT: &str = "50001";

/// The password of a store that is named by a URL.
pub(super) fn password() -> Result<Option<String>, ToolError> {
    match (env::var(PASSWORD).ok(), env::var_os(PASSWORD_FILE)) {
        (Some(_), Some(_)) => Err(ToolError::usage(format!(
            "{PASSWORD} and {PASSWORD_FILE} are both set; unset one of them"
        ))),
        (password, None) => Ok(password),
        (None, Some(file)) => {
            let mut password = fs::read_to_string(&file).map_err(|error| {
                ToolError::usage(format!("{PASSWORD_FILE}: {}: {error}", file.display()))
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
    let endpoint = set("DAPR_GRPC_ENDPOINT").unwrap_or_else(|| {
        let port = set("DAPR_GRPC_PORT").unwrap_or_else(|| SIDECAR_PORT.into());
        format!("127.0.0.1:{port}")
    });
    let wrong = |why: &str| ToolError::usage(format!("DAPR_GRPC_ENDPOINT: {endpoint}: {why}"));
    let uri = match endpoint.split_once("://") {
        Some(("http", _)) => endpoint.clone(),
        Some(_) => return Err(wrong("a sidecar is reached over http:// only")),
        None => format!("http://{endpoint}"),
    };
    let endpoint = Endpoint::from_shared(uri).map_err(|error| wrong(&error.to_string()))?;
    Ok(endpoint.connect_lazy())
}

/// The token that the sidecar asks for.
pub(super) fn api_token() -> Result<Option<MetadataValue<Ascii>>, ToolError> {
    let token = set("DAPR_API_TOKEN").map(|token| token.parse()).transpose();
    token.map_err(|_| ToolError::usage("DAPR_API_TOKEN cannot be a header's value"))
}

fn set(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}
