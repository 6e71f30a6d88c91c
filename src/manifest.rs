//! Component YAML, as daprd reads it.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use serde::Deserialize;

/// What stands in a value for something that only daprd knows.
pub const TEMPLATES: [&str; 4] = ["{uuid}", "{podName}", "{namespace}", "{appID}"];

/// Whether `envRef` may name this variable: not those that carry Dapr's own
/// secrets, as in daprd.
#[must_use]
pub fn env_allowed(variable: &str) -> bool {
    let variable = variable.to_uppercase();
    !variable.starts_with("DAPR_") && variable != "APP_API_TOKEN"
}

/// A component of a folder, before its values are resolved.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// The component's name: the instance's name.
    pub name: String,
    /// Its type, such as `lock.redis`.
    pub kind: String,
    /// The names of its metadata items, and where their values come from.
    pub items: Vec<(String, Value)>,
    /// Where it was read.
    pub file: PathBuf,
}

/// Where the value of a metadata item comes from.
#[derive(Clone, PartialEq, Eq)]
pub enum Value {
    /// It stands there.
    Plain(String),
    /// An environment variable.
    Env(String),
    /// A secret store of daprd's.
    Secret,
}

impl std::fmt::Debug for Value {
    /// Shows no value: it may be a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Plain(_) => "Plain",
            Self::Env(_) => "Env",
            Self::Secret => "Secret",
        })
    }
}

/// Why a folder's YAML cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The folder or a file cannot be read.
    #[error("{path}: {error}")]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A document is no component.
    #[error("{path}, document {document}: {problem}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The document's number in it, from 1.
        document: usize,
        /// What is wrong.
        problem: String,
    },
    /// Two components have one name.
    #[error("{path}: a component named {name:?} is also in {other}; names must differ")]
    Duplicate {
        /// The second file.
        path: PathBuf,
        /// The first one.
        other: PathBuf,
        /// The name.
        name: String,
    },
}

#[derive(Deserialize)]
struct Document {
    kind: Option<String>,
    metadata: Option<Named>,
    spec: Option<Spec>,
}

#[derive(Deserialize)]
struct Named {
    name: Option<String>,
}

#[derive(Deserialize)]
struct Spec {
    r#type: Option<String>,
    #[serde(default)]
    metadata: Option<Vec<Item>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    name: String,
    value: Option<serde_yaml_ng::Value>,
    secret_key_ref: Option<serde_yaml_ng::Value>,
    env_ref: Option<String>,
}

/// Reads every component in the `.yaml` and `.yml` files of `folders`, many
/// documents a file; documents of other kinds are skipped.
pub fn read_folders(folders: &[PathBuf]) -> Result<Vec<Manifest>, ManifestError> {
    let mut found: BTreeMap<String, Manifest> = BTreeMap::new();
    for folder in folders {
        for path in yaml_files(folder)? {
            let text = fs::read_to_string(&path)
                .map_err(|error| ManifestError::Io { path: path.clone(), error })?;
            for manifest in read(&text, &path)? {
                if let Some(other) = found.get(&manifest.name) {
                    return Err(ManifestError::Duplicate {
                        other: other.file.clone(),
                        name: manifest.name,
                        path,
                    });
                }
                found.insert(manifest.name.clone(), manifest);
            }
        }
    }
    Ok(found.into_values().collect())
}

/// Reads the components of one file's text.
pub fn read(text: &str, path: &Path) -> Result<Vec<Manifest>, ManifestError> {
    let mut manifests = Vec::new();
    for (index, document) in serde_yaml_ng::Deserializer::from_str(text).enumerate() {
        let malformed = |problem: String| ManifestError::Malformed {
            path: path.to_owned(),
            document: index + 1,
            problem,
        };
        let value = serde_yaml_ng::Value::deserialize(document)
            .map_err(|error| malformed(error.to_string()))?;
        if value.get("kind").and_then(serde_yaml_ng::Value::as_str) != Some("Component") {
            continue;
        }
        // The parser's own words may repeat a value, and that may be a secret.
        let document: Document = serde_yaml_ng::from_value(value).map_err(|_| {
            malformed(
                "is no Component: metadata.name and spec.type must be texts, spec.metadata a \
                 list of items with name and value, secretKeyRef or envRef"
                    .to_owned(),
            )
        })?;
        let manifest = manifest(document, path)
            .map_err(|field| malformed(format!("{field} is missing")))?;
        manifests.push(manifest);
    }
    Ok(manifests)
}

fn manifest(document: Document, path: &Path) -> Result<Manifest, &'static str> {
    debug_assert_eq!(document.kind.as_deref(), Some("Component"));
    let name = document.metadata.and_then(|metadata| metadata.name).ok_or("metadata.name")?;
    let spec = document.spec.ok_or("spec")?;
    let items = spec.metadata.unwrap_or_default().into_iter().map(|item| {
        let value = match (item.secret_key_ref, item.env_ref, item.value) {
            (Some(_), _, _) => Value::Secret,
            (None, Some(variable), _) => Value::Env(variable),
            (None, None, value) => Value::Plain(plain(value.as_ref())),
        };
        (item.name, value)
    });
    Ok(Manifest {
        name,
        kind: spec.r#type.ok_or("spec.type")?,
        items: items.collect(),
        file: path.to_owned(),
    })
}

/// A value as daprd hands it on: strings unquoted, all else as JSON text.
fn plain(value: Option<&serde_yaml_ng::Value>) -> String {
    match value {
        None | Some(serde_yaml_ng::Value::Null) => String::new(),
        Some(serde_yaml_ng::Value::String(text)) => text.clone(),
        Some(other) => serde_json::to_string(other).unwrap_or_default(),
    }
}

fn yaml_files(folder: &Path) -> Result<Vec<PathBuf>, ManifestError> {
    let io = |error| ManifestError::Io { path: folder.to_owned(), error };
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
        let is_yaml = path.extension().is_some_and(|ext| ext == "yaml" || ext == "yml");
        if is_yaml && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Vec<Manifest>, ManifestError> {
        read(text, Path::new("locks.yaml"))
    }

    #[test]
    fn every_component_of_a_file_is_read_and_other_kinds_are_skipped() {
        let manifests = read_text(
            "kind: Configuration\n---\nkind: Component\nmetadata: {name: a}\nspec: {type: \
             lock.memory, metadata: [{name: ttl, value: 10s}, {name: n, value: 5}]}\n---\nkind: \
             Component\nmetadata: {name: b}\nspec: {type: lock.redis}\n",
        )
        .unwrap();
        assert_eq!(manifests.len(), 2);
        assert_eq!(manifests[0].items[0], ("ttl".into(), Value::Plain("10s".into())));
        assert_eq!(manifests[0].items[1], ("n".into(), Value::Plain("5".into())));
    }

    #[test]
    fn a_missing_field_is_named_with_its_file_and_document() {
        let error = read_text("kind: Component\nmetadata: {name: a}\nspec: {}\n").unwrap_err();
        assert_eq!(error.to_string(), "locks.yaml, document 1: spec.type is missing");
    }

    #[test]
    fn a_wrong_shape_is_refused_without_repeating_a_value() {
        let error = read_text(
            "kind: Component\nmetadata: {name: a}\nspec: {type: t, metadata: \
            hunter2}\n",
        )
        .unwrap_err()
        .to_string();
        assert!(error.contains("spec.metadata") && !error.contains("hunter2"), "{error}");
    }

    #[test]
    fn dapr_s_own_variables_are_not_to_be_read() {
        for denied in ["DAPR_API_TOKEN", "dapr_x", "APP_API_TOKEN"] {
            assert!(!env_allowed(denied), "{denied}");
        }
        assert!(env_allowed("REDIS_PASSWORD"));
    }

    #[test]
    fn broken_yaml_is_an_error() {
        assert!(matches!(read_text("kind: [\n"), Err(ManifestError::Malformed { .. })));
    }

    #[test]
    fn debug_shows_no_value() {
        assert!(!format!("{:?}", Value::Plain("hunter2".into())).contains("hunter2"));
    }
}
