//! A component's properties, with references and templates resolved.

use std::collections::BTreeMap;

use async_trait::async_trait;

use super::{
    component::{Component, Item, Reference},
    environment::Environment,
    template::fill_in,
};

/// A source of secrets.
#[async_trait]
pub trait Secrets: Send + Sync {
    /// The keys and values of one secret in `store`, for components of `namespace`, which
    /// is empty if they name none.
    async fn secret(
        &self,
        store: &str,
        name: &str,
        namespace: &str,
    ) -> Result<BTreeMap<String, String>, SecretError>;
}

/// Used without daprd: every secret lookup fails.
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
        let why =
            "only daprd can read secrets; name one with --daprd-http-endpoint, or use envRef";
        Err(SecretError { why: why.into(), may_pass: false })
    }
}

/// Why a secret could not be read. Its text contains no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct SecretError {
    /// The text.
    pub why: String,
    /// Whether the same question can be answered later.
    pub may_pass: bool,
}

/// Why a component's properties could not be resolved. Names the component, where it was
/// read, and the item; contains no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{component}, {origin}: the metadata item {item:?} {problem}")]
pub struct PropertyError {
    component: String,
    origin: String,
    item: String,
    problem: String,
    may_pass: bool,
}

impl PropertyError {
    /// Whether a retry can succeed with unchanged YAML: the source of a secret did not answer.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        self.may_pass
    }
}

/// What is wrong with an item.
struct Unresolved {
    problem: String,
    may_pass: bool,
}

impl From<String> for Unresolved {
    fn from(problem: String) -> Self {
        Self { problem, may_pass: false }
    }
}

impl Component {
    /// Its resolved properties by key. If a key is given twice, the last item counts; an
    /// absent value is empty.
    ///
    /// A secret that cannot be read is an error, because a store must not be opened without
    /// its password. (daprd continues without it.)
    pub async fn properties(
        &self,
        environment: &Environment,
        secrets: &dyn Secrets,
    ) -> Result<BTreeMap<String, String>, PropertyError> {
        let mut fetched = BTreeMap::new();
        let mut properties = BTreeMap::new();
        for item in &self.items {
            let refuse = |Unresolved { problem, may_pass }| PropertyError {
                component: self.to_string(),
                origin: self.origin.to_string(),
                item: item.name.clone(),
                problem,
                may_pass,
            };
            let value =
                self.value(item, environment, secrets, &mut fetched).await.map_err(refuse)?;
            let value = fill_in(value, environment).map_err(|why| refuse(why.into()))?;
            properties.insert(item.name.clone(), value);
        }
        Ok(properties)
    }

    async fn value(
        &self,
        item: &Item,
        environment: &Environment,
        secrets: &dyn Secrets,
        fetched: &mut BTreeMap<String, BTreeMap<String, String>>,
    ) -> Result<String, Unresolved> {
        let literal = item.value.clone();
        match &item.reference {
            None => {
                if literal.is_none() {
                    tracing::warn!(component = %self, item = %item.name,
                        "a metadata item has no value; give it one, or leave it out");
                }
                Ok(literal.unwrap_or_default())
            }
            Some(Reference::Env(name)) => match environment.env_ref(name) {
                Some(value) if value.is_empty() => {
                    tracing::warn!(component = %self, item = %item.name, variable = %name,
                        "envRef names a variable that is not set, or empty; the item is empty");
                    Ok(value)
                }
                Some(value) => Ok(unquote(value)),
                None => {
                    tracing::warn!(component = %self, item = %item.name, variable = %name,
                        "envRef names a variable that components may not read; the item is empty");
                    Ok(String::new())
                }
            },
            Some(Reference::Secret { name, key }) => {
                if !fetched.contains_key(name) {
                    let store = self.secret_store_in(environment)?;
                    let secret = secrets.secret(store, name, &self.namespace).await.map_err(
                        |SecretError { why, may_pass }| Unresolved {
                            problem: format!(
                                "needs the secret {name:?} of the secret store {store:?}: {why}"
                            ),
                            may_pass,
                        },
                    )?;
                    fetched.insert(name.clone(), secret);
                }
                let key = if key.is_empty() { name } else { key };
                let found = fetched.get(name).and_then(|secret| secret.get(key));
                match (found, literal) {
                    (Some(value), _) if !value.is_empty() => Ok(unquote(value.clone())),
                    (_, Some(literal)) => Ok(literal),
                    _ => Err(format!("needs the key {key:?}, which the secret {name:?} lacks")
                        .into()),
                }
            }
        }
    }

    fn secret_store_in<'a>(&'a self, environment: &'a Environment) -> Result<&'a str, String> {
        if !self.secret_store.is_empty() {
            return Ok(&self.secret_store);
        }
        environment.secret_store.as_deref().ok_or_else(|| {
            "has a secretKeyRef, but no secret store is named; add, beside spec, \
             auth: {secretStore: NAME}"
                .to_owned()
        })
    }
}

/// Removes the quotes of a value from a secret or a variable, if it is a Go string literal.
/// daprd does the same.
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
