//! The component YAML, in daprd's format.

use std::{collections::HashMap, path::Path};

use anyhow::{Context as _, bail};
use serde::Deserialize;
use serde_yaml_ng::Value;

/// A lock store as described by component YAML.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Component {
    /// `metadata.name`: the name of the instance.
    pub name: String,
    /// `spec.type`, such as `lock.redis`.
    pub kind: String,
    /// `spec.metadata`: the properties for Init, as daprd would send them.
    pub properties: HashMap<String, String>,
}

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    metadata: Named,
    #[serde(default)]
    spec: Spec,
}

#[derive(Default, Deserialize)]
struct Named {
    #[serde(default)]
    name: String,
}

#[derive(Default, Deserialize)]
struct Spec {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    metadata: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    name: String,
    value: Option<Value>,
}

impl Component {
    /// Reads the only lock store of the file.
    ///
    /// # Errors
    /// When the file cannot be read, is not YAML, does not have exactly one lock store, or
    /// refers to a secret or an environment variable. The suite reads neither, so give it a
    /// file with plain values.
    pub fn read(file: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("cannot read the component YAML {}", file.display()))?;
        Self::parse(&text).with_context(|| format!("in {}", file.display()))
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let mut found = Vec::new();
        for document in serde_yaml_ng::Deserializer::from_str(text) {
            let document = Option::<Document>::deserialize(document).context("not YAML")?;
            found.extend(document.filter(|document| {
                document.kind == "Component" && document.spec.kind.starts_with("lock.")
            }));
        }
        let document = match <[Document; 1]>::try_from(found) {
            Ok([document]) => document,
            Err(found) => bail!(
                "one document with `kind: Component` and a `spec.type` that begins with `lock.` \
                 is needed, found {}",
                found.len()
            ),
        };
        if document.metadata.name.is_empty() {
            bail!("`metadata.name` is missing");
        }
        let properties =
            document.spec.metadata.into_iter().map(property).collect::<Result<_, _>>()?;
        Ok(Self { name: document.metadata.name, kind: document.spec.kind, properties })
    }
}

fn property(Item { name, value }: Item) -> anyhow::Result<(String, String)> {
    let value = match value {
        Some(Value::String(text)) => text,
        Some(Value::Bool(flag)) => flag.to_string(),
        Some(Value::Number(number)) => number.to_string(),
        Some(Value::Null) => String::new(),
        Some(_) => bail!("`spec.metadata` item `{name}`: write its value as a string"),
        None => bail!("`spec.metadata` item `{name}` has no `value`: give it a plain one"),
    };
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REDIS: &str = "
apiVersion: dapr.io/v1alpha1
kind: Component
metadata:
  name: locks
spec:
  type: lock.redis
  version: v1
  metadata:
  - name: redisHost
    value: localhost:6379
  - name: redisDB
    value: 3
";

    #[test]
    fn the_name_and_the_properties_are_read_as_daprd_would_send_them() {
        let component = Component::parse(REDIS).unwrap();
        assert_eq!(component.name, "locks");
        assert_eq!(component.kind, "lock.redis");
        assert_eq!(component.properties["redisHost"], "localhost:6379");
        assert_eq!(component.properties["redisDB"], "3");
    }

    #[test]
    fn other_documents_are_skipped() {
        let text = format!("kind: Configuration\n---\n{REDIS}\n---\n");
        assert_eq!(Component::parse(&text).unwrap().name, "locks");
    }

    #[test]
    fn two_lock_stores_in_one_file_are_refused() {
        let error = Component::parse(&format!("{REDIS}\n---\n{REDIS}")).unwrap_err();
        assert!(error.to_string().contains("found 2"), "{error}");
    }

    #[test]
    fn a_secret_reference_is_refused_by_its_name() {
        let text = REDIS.replace("value: 3", "secretKeyRef: {name: a, key: b}");
        let error = Component::parse(&text).unwrap_err();
        assert!(error.to_string().contains("`redisDB`"), "{error}");
    }
}
