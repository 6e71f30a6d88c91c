//! What the sidecar tells about itself where no daprd is there to do it.

use std::{collections::HashMap, sync::Arc};

use leasehold_proto::dapr::{GetMetadataResponse, RegisteredComponents};
use serde_json::{Value, json};

use super::stores::Stores;

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// An older place of the version, which some SDKs still read.
const VERSION_KEY: &str = "daprRuntimeVersion";

/// Describes this sidecar.
#[derive(Clone, Debug)]
pub struct Metadata {
    /// The app's ID.
    pub app_id: Arc<str>,
    /// The stores, which are its components.
    pub stores: Stores,
}

impl Metadata {
    /// As gRPC's `GetMetadata` answers.
    #[must_use]
    pub fn as_proto(&self) -> GetMetadataResponse {
        GetMetadataResponse {
            id: self.app_id.to_string(),
            registered_components: self
                .stores
                .all()
                .iter()
                .map(|store| RegisteredComponents {
                    name: store.name.to_string(),
                    r#type: store.kind.clone(),
                    version: store.version.clone(),
                })
                .collect(),
            extended_metadata: HashMap::from([(VERSION_KEY.to_owned(), VERSION.to_owned())]),
            runtime_version: VERSION.to_owned(),
        }
    }

    /// As `GET /v1.0/metadata` answers.
    #[must_use]
    pub fn as_json(&self) -> Value {
        let components: Vec<Value> = self
            .stores
            .all()
            .iter()
            .map(|store| {
                json!({ "name": *store.name, "type": store.kind, "version": store.version })
            })
            .collect();
        json!({
            "id": *self.app_id,
            "runtimeVersion": VERSION,
            "components": components,
            "extended": { VERSION_KEY: VERSION },
            "actorRuntime": { "runtimeStatus": "DISABLED", "hostReady": false },
        })
    }
}
