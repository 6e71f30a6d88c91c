//! The sidecar's metadata, served if there is no daprd to do it.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use leasehold_proto::dapr::{GetMetadataResponse, RegisteredComponents};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::stores::Stores;

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// An older place of the version, which some SDKs still read.
const VERSION_KEY: &str = "daprRuntimeVersion";
/// The most attributes, and the longest key or value.
const ATTRIBUTES_MAX: usize = 64;
const ATTRIBUTE_BYTES_MAX: usize = 4096;

/// The metadata of this sidecar.
#[derive(Clone, Debug)]
pub struct Metadata {
    /// The app's ID.
    pub app_id: Arc<str>,
    /// The stores, which are its components.
    pub stores: Stores,
    /// Attributes that callers have set: `dapr run` stores the process IDs here
    /// that `dapr list` shows.
    pub attributes: Attributes,
}

/// Attributes that callers set. They last as long as the process. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Attributes(Arc<Mutex<BTreeMap<String, String>>>);

impl Attributes {
    /// Sets an attribute, within the limits.
    ///
    /// # Errors
    ///
    /// The limit that was exceeded.
    pub fn set(&self, key: String, value: String) -> Result<(), String> {
        if key.len().max(value.len()) > ATTRIBUTE_BYTES_MAX {
            return Err(format!(
                "a key or value of the metadata may have {ATTRIBUTE_BYTES_MAX} bytes; shorten it"
            ));
        }
        let mut attributes = self.0.lock();
        if attributes.len() >= ATTRIBUTES_MAX && !attributes.contains_key(&key) {
            return Err(format!(
                "the metadata may have {ATTRIBUTES_MAX} attributes; reuse a key"
            ));
        }
        attributes.insert(key, value);
        Ok(())
    }

    /// All of them, and the version, which no caller can change.
    fn all(&self) -> HashMap<String, String> {
        let mut all: HashMap<String, String> = self.0.lock().clone().into_iter().collect();
        all.insert(VERSION_KEY.to_owned(), VERSION.to_owned());
        all
    }
}

impl Metadata {
    /// The response of gRPC's `GetMetadata`.
    #[must_use]
    pub fn as_proto(&self) -> GetMetadataResponse {
        GetMetadataResponse {
            id: self.app_id.to_string(),
            registered_components: self
                .stores
                .all()
                .iter()
                .map(|store| RegisteredComponents {
                    name: store.name().to_string(),
                    r#type: store.kind.clone(),
                    version: store.version.clone(),
                })
                .collect(),
            extended_metadata: self.attributes.all(),
            runtime_version: VERSION.to_owned(),
        }
    }

    /// The response of `GET /v1.0/metadata`.
    #[must_use]
    pub fn as_json(&self) -> Value {
        let metadata = self.as_proto();
        let components = metadata.registered_components.iter().map(|component| {
            json!({
                "name": component.name,
                "type": component.r#type,
                "version": component.version,
            })
        });
        json!({
            "id": metadata.id,
            "runtimeVersion": metadata.runtime_version,
            "components": components.collect::<Vec<_>>(),
            "extended": metadata.extended_metadata,
            "actorRuntime": { "runtimeStatus": "DISABLED", "hostReady": false },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_limited_in_number_and_length() {
        let attributes = Attributes::default();
        let long = "x".repeat(ATTRIBUTE_BYTES_MAX + 1);
        assert!(attributes.set(long.clone(), String::new()).is_err());
        assert!(attributes.set("key".to_owned(), long).is_err());
        for number in 0..ATTRIBUTES_MAX {
            attributes.set(number.to_string(), String::new()).unwrap();
        }
        assert!(attributes.set("one more".to_owned(), String::new()).is_err());
        attributes.set("0".to_owned(), "changed".to_owned()).unwrap();
        assert_eq!(attributes.all()["0"], "changed");
    }
}
