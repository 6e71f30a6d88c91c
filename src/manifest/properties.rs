//! A component's properties: references followed, templates filled in.

use std::collections::BTreeMap;

use async_trait::async_trait;
use uuid::Uuid;

use super::{Component, Environment, Item, Reference};

/// Templates a value may have; each one is replaced by a UUID of its own.
const UUIDS_MAX: usize = 1_000;

/// Where secrets are kept.
#[async_trait]
pub trait Secrets: Send + Sync {
    /// The keys and values of one secret, as `store` has it for components of
    /// `namespace` (empty: none is said).
    async fn secret(
        &self,
        store: &str,
        name: &str,
        namespace: &str,
    ) -> Result<BTreeMap<String, String>, SecretError>;
}

/// Used where there is no daprd: every look-up fails.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSecrets;

#[async_trait]
impl Secrets for NoSecrets {
    async fn secret(
        &self,
        _: &str,
        _: &str,
        _: &str,
    ) -> Result<BTreeMap<String, String>, SecretError> {
        Err(SecretError("no daprd is there to ask; name one with --daprd-http-endpoint".into()))
    }
}

/// Why a secret was not had. Its text holds no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SecretError(pub String);

/// Why a component's properties could not be made. Names the component, where
/// it was read, and the item; holds no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{component}, {origin}: the metadata item {item:?} {problem}")]
pub struct PropertyError {
    component: String,
    origin: String,
    item: String,
    problem: String,
}

impl Component {
    /// Its properties as a store takes them: key → value, the last item of a
    /// key counting, an absent value empty.
    ///
    /// Where daprd goes on without a secret that it cannot get, this is an
    /// error: a store must not be opened without its password.
    pub async fn properties(
        &self,
        around: &Environment,
        secrets: &dyn Secrets,
    ) -> Result<BTreeMap<String, String>, PropertyError> {
        let mut fetched = BTreeMap::new();
        let mut properties = BTreeMap::new();
        for item in &self.items {
            let refuse = |problem: String| PropertyError {
                component: self.to_string(),
                origin: self.origin.to_string(),
                item: item.name.clone(),
                problem,
            };
            let value =
                self.value(item, around, secrets, &mut fetched).await.map_err(refuse)?;
            let value = fill_in(value, around).map_err(refuse)?;
            properties.insert(item.name.clone(), value);
        }
        Ok(properties)
    }

    async fn value(
        &self,
        item: &Item,
        around: &Environment,
        secrets: &dyn Secrets,
        fetched: &mut BTreeMap<String, BTreeMap<String, String>>,
    ) -> Result<String, String> {
        let literal = item.value.clone();
        match &item.reference {
            None => {
                if literal.is_none() {
                    tracing::warn!(component = %self, item = %item.name,
                        "a metadata item has no value; give it one, or leave it out");
                }
                Ok(literal.unwrap_or_default())
            }
            Some(Reference::Env(name)) => match around.env_ref(name) {
                Some(value) => Ok(unquote(value)),
                None => {
                    tracing::warn!(component = %self, item = %item.name, variable = %name,
                        "envRef names a variable that components may not read; left empty");
                    Ok(String::new())
                }
            },
            Some(Reference::Secret { name, key }) => {
                if !fetched.contains_key(name) {
                    let store = self.secret_store_in(around)?;
                    let secret = secrets.secret(store, name, &self.namespace).await.map_err(
                        |SecretError(why)| {
                            format!(
                                "needs the secret {name:?} of the secret store {store:?}: {why}"
                            )
                        },
                    )?;
                    fetched.insert(name.clone(), secret);
                }
                let key = if key.is_empty() { name } else { key };
                let found = fetched.get(name).and_then(|secret| secret.get(key));
                match (found, literal) {
                    (Some(value), _) if !value.is_empty() => Ok(unquote(value.clone())),
                    (_, Some(literal)) => Ok(literal),
                    _ => Err(format!("needs the key {key:?}, which the secret {name:?} lacks")),
                }
            }
        }
    }

    fn secret_store_in<'a>(&'a self, around: &'a Environment) -> Result<&'a str, String> {
        if !self.secret_store.is_empty() {
            return Ok(&self.secret_store);
        }
        around.secret_store.as_deref().ok_or_else(|| {
            "has a secretKeyRef, but no secret store is named; add, beside spec, \
             auth: {secretStore: NAME}"
                .to_owned()
        })
    }
}

/// Replaces `{uuid}`, `{podName}`, `{namespace}` and `{appID}`.
fn fill_in(mut value: String, around: &Environment) -> Result<String, String> {
    if value.matches("{uuid}").count() > UUIDS_MAX {
        return Err(format!("has more than {UUIDS_MAX} times {{uuid}}"));
    }
    while value.contains("{uuid}") {
        value = value.replacen("{uuid}", &Uuid::new_v4().to_string(), 1);
    }
    if value.contains("{podName}") {
        let Some(pod) = &around.pod_name else {
            return Err("refers to {podName}, but POD_NAME is not set; set it".to_owned());
        };
        value = value.replace("{podName}", pod);
    }
    if !names_app(&value) {
        return Ok(value);
    }
    let Some(app_id) = &around.app_id else {
        return Err("refers to the app's ID, which is known to a sidecar only".to_owned());
    };
    Ok(value.replace("{namespace}", &around.namespaced(app_id)).replace("{appID}", app_id))
}

/// Whether a value has a template of any kind.
pub(super) fn has_template(value: &str) -> bool {
    names_app(value) || value.contains("{uuid}") || value.contains("{podName}")
}

/// Whether a value depends on the app's ID.
fn names_app(value: &str) -> bool {
    value.contains("{namespace}") || value.contains("{appID}")
}

/// Takes the quotes off a value from outside, as daprd does if they make it a
/// Go string literal.
fn unquote(value: String) -> String {
    let inner = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    if let Some(raw) = inner('`').filter(|raw| !raw.contains('`')) {
        return raw.replace('\r', "");
    }
    if inner('"').is_some()
        && let Ok(text) = serde_json::from_str(&value)
    {
        return text;
    }
    match inner('\'').map(|inner| (inner, inner.chars().count())) {
        Some((character, 1)) if character != "\\" && character != "'" => character.to_owned(),
        _ => value,
    }
}

#[cfg(test)]
#[path = "properties_tests.rs"]
mod tests;
