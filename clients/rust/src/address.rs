//! Where the sidecar is.

use tonic::transport::{Channel, Endpoint};

use crate::error::{Error, Failure};

const DEFAULT_PORT: &str = "50001";

/// The address that the environment names, or else the default one, as Dapr's SDKs have it.
pub(crate) fn from_environment(variable: impl Fn(&str) -> Option<String>) -> String {
    let variable = |name| variable(name).filter(|value| !value.is_empty());
    variable("DAPR_GRPC_ENDPOINT").unwrap_or_else(|| {
        let port = variable("DAPR_GRPC_PORT").unwrap_or_else(|| DEFAULT_PORT.to_owned());
        format!("127.0.0.1:{port}")
    })
}

/// A channel that connects when it is first used.
pub(crate) fn connect(address: &str) -> Result<Channel, Error> {
    let bad = |problem: &str| Failure::option("address", &format!("{address:?} {problem}"));
    let url = if address.contains("://") || address.starts_with("unix:") {
        address.to_owned()
    } else {
        format!("http://{address}")
    };
    let endpoint = Endpoint::from_shared(url.clone())
        .map_err(|_| bad("is not an address of a sidecar"))?;
    let endpoint = match url.split_once(':').map(|(scheme, _)| scheme) {
        Some("http" | "unix") => endpoint,
        Some("https") => encrypted(endpoint).map_err(|problem| bad(&problem))?,
        _ => return Err(bad("is neither http, https, unix nor host:port")),
    };
    Ok(endpoint.connect_lazy())
}

#[cfg(feature = "tls")]
fn encrypted(endpoint: Endpoint) -> Result<Endpoint, String> {
    let settings = tonic::transport::ClientTlsConfig::new().with_native_roots();
    endpoint.tls_config(settings).map_err(|error| format!("cannot be used: {error}"))
}

#[cfg(not(feature = "tls"))]
fn encrypted(_: Endpoint) -> Result<Endpoint, String> {
    Err("needs the feature `tls` of leasehold-client".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(variables: &[(&str, &str)]) -> String {
        from_environment(|name| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_endpoint_comes_before_the_port_and_the_port_before_the_default() {
        let (endpoint, port) = (("DAPR_GRPC_ENDPOINT", "h:1"), ("DAPR_GRPC_PORT", "4"));
        assert_eq!(resolved(&[endpoint, port]), "h:1");
        assert_eq!(resolved(&[("DAPR_GRPC_ENDPOINT", ""), port]), "127.0.0.1:4");
        assert_eq!(resolved(&[]), "127.0.0.1:50001");
    }

    #[tokio::test]
    async fn every_form_of_an_address_is_taken() {
        let forms =
            ["localhost:50001", "[::1]:50001", "http://h:1", "unix:/tmp/s", "unix:///s"];
        for form in forms {
            connect(form).unwrap();
        }
        #[cfg(feature = "tls")]
        connect("https://h").unwrap();
        for form in ["", "ftp://h:1", "a b:1"] {
            let error = connect(form).unwrap_err().to_string();
            assert!(error.starts_with("INVALID_REQUEST: address: "), "{error}");
        }
    }
}
