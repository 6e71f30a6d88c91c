//! A component, as its document describes it.

use std::{collections::BTreeSet, fmt, time::Duration};

use leasehold_lock::properties::nearest;
use leasehold_util::duration::parse_go_duration;
use tracing::warn;

use super::{
    environment::Environment,
    fields::Field,
    problem::{Fault, Origin},
    template::has_template,
};

const API_VERSION: &str = "dapr.io/v1alpha1";
const KIND: &str = "Component";
/// The kinds of resources that Dapr keeps beside components.
const DAPRS_KINDS: [&str; 5] =
    [KIND, "Configuration", "HTTPEndpoint", "Resiliency", "Subscription"];
const FIELDS: [&str; 7] =
    ["apiVersion", "kind", "metadata", "spec", "auth", "scopes", "status"];
const SPEC_FIELDS: [&str; 5] = ["type", "version", "ignoreErrors", "initTimeout", "metadata"];
/// How long Init may take if `initTimeout` is absent or not a duration.
const INIT_TIMEOUT: Duration = Duration::from_secs(5);

/// A component of any type, as written in its YAML: references and templates are not
/// resolved yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Component {
    /// `metadata.name`: the name that apps use.
    pub name: String,
    /// `metadata.namespace`; empty where absent.
    pub namespace: String,
    /// `spec.type`, `lock.redis` for example.
    pub kind: String,
    /// `spec.version`; empty where absent.
    pub version: String,
    /// `spec.ignoreErrors`: whether to continue without it if Init fails.
    pub ignore_errors: bool,
    /// `spec.initTimeout`; 5 s where it is absent, not positive, or no Go
    /// duration.
    pub init_timeout: Duration,
    /// `spec.metadata`, in order.
    pub items: Vec<Item>,
    /// `auth.secretStore`; empty where absent.
    pub secret_store: String,
    /// `scopes`: the app IDs that may use it; empty means all.
    pub scopes: Vec<String>,
    /// The file and document that it was read from.
    pub origin: Origin,
}

/// One item of a component's metadata. `Debug` shows no value, because values
/// can be secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct Item {
    /// The property's key.
    pub name: String,
    /// A literal value: a string unchanged, anything else as JSON. `None` if absent or
    /// null.
    pub value: Option<String>,
    /// Where the value comes from, if not from `value`.
    pub reference: Option<Reference>,
}

/// The source of a value that is not in the YAML.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// `secretKeyRef`: preferred to a literal value.
    Secret {
        /// The secret's name in the secret store.
        name: String,
        /// The key within the secret; if empty, the name of the secret.
        key: String,
    },
    /// `envRef`: an environment variable, used if there is no literal value.
    Env(String),
}

impl Component {
    /// Reads a document; `None` if it is of another kind.
    pub(super) fn read(document: &Field<'_>, origin: Origin) -> Result<Option<Self>, Fault> {
        let api_version = document.get("apiVersion")?.text()?;
        let kind = document.get("kind")?.text()?;
        let metadata = document.get("metadata")?;
        if api_version != API_VERSION || kind != KIND {
            let is_daprs = api_version == API_VERSION && DAPRS_KINDS.contains(&kind.as_str());
            if api_version.starts_with("dapr.io/") && !is_daprs {
                warn!(%origin, api_version, kind, "no kind of resource that Dapr has; skipped");
            }
            return Ok(None);
        }
        let name = checked_name(&metadata.get("name")?)?;
        let spec = document.get("spec")?;
        warn_of_others("", document, &FIELDS, &origin);
        warn_of_others("spec.", &spec, &SPEC_FIELDS, &origin);
        let items = spec.get("metadata")?.list()?;
        let scopes = document.get("scopes")?.list()?;
        Ok(Some(Self {
            name,
            namespace: metadata.get("namespace")?.text()?,
            kind: spec.get("type")?.text()?,
            version: spec.get("version")?.text()?,
            ignore_errors: spec.get("ignoreErrors")?.flag()?,
            init_timeout: parse_go_duration(&spec.get("initTimeout")?.text()?)
                .filter(|timeout| !timeout.is_zero())
                .unwrap_or(INIT_TIMEOUT),
            items: items.iter().map(Item::read).collect::<Result<_, _>>()?,
            secret_store: document.get("auth")?.get("secretStore")?.text()?,
            scopes: scopes.iter().map(Field::text).collect::<Result<_, _>>()?,
            origin,
        }))
    }

    /// The name in `lock.NAME`, in lower case; `None` for other types.
    #[must_use]
    pub fn lock_type(&self) -> Option<String> {
        self.kind.strip_prefix("lock.").map(str::to_lowercase)
    }

    /// Whether its version is the only one that lock stores have: `v1`, or `v0` or empty,
    /// which mean the same.
    #[must_use]
    pub fn is_first_version(&self) -> bool {
        matches!(&*self.version.to_lowercase(), "" | "v0" | "v1")
    }

    /// Whether this app may use it; `None` stands for any app.
    #[must_use]
    pub fn is_in_scope(&self, app_id: Option<&str>) -> bool {
        self.scopes.is_empty()
            || app_id.is_none_or(|app_id| self.scopes.iter().any(|scope| scope == app_id))
    }

    /// A property that only daprd can resolve: it comes from a secret store or from a
    /// variable that is not set here, or has a template and no app is known.
    #[must_use]
    pub fn waits_for_daprd(&self, environment: &Environment) -> Option<&Item> {
        self.items.iter().find(|item| match &item.reference {
            Some(Reference::Secret { .. }) => true,
            Some(Reference::Env(variable)) => {
                environment.env_ref(variable).is_none_or(|value| value.is_empty())
            }
            None => {
                environment.app_id.is_none() && item.value.as_deref().is_some_and(has_template)
            }
        })
    }

    /// The fields in which it differs from `other`, apart from where it was read. No values,
    /// because they can be secrets.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let fields = [
            ("metadata.namespace", self.namespace != other.namespace),
            ("spec.type", self.kind != other.kind),
            ("spec.version", self.version != other.version),
            ("spec.ignoreErrors", self.ignore_errors != other.ignore_errors),
            ("spec.initTimeout", self.init_timeout != other.init_timeout),
            ("auth.secretStore", self.secret_store != other.secret_store),
            ("scopes", self.scopes != other.scopes),
        ];
        let fields = fields.into_iter().filter(|(_, differs)| *differs);
        let names: BTreeSet<_> =
            self.items.iter().chain(&other.items).map(|item| &item.name).collect();
        let items =
            names.into_iter().filter(|name| !self.items_of(name).eq(other.items_of(name)));
        fields
            .map(|(field, _)| field.to_owned())
            .chain(items.map(|name| format!("spec.metadata.{name}")))
            .collect()
    }

    fn items_of(&self, name: &str) -> impl Iterator<Item = &Item> {
        self.items.iter().filter(move |item| item.name == name)
    }
}

impl fmt::Display for Component {
    /// The form of daprd's log: `name (type/version)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}", self.name, self.kind)?;
        if !self.version.is_empty() {
            write!(f, "/{}", self.version)?;
        }
        write!(f, ")")
    }
}

impl Item {
    fn read(item: &Field<'_>) -> Result<Self, Fault> {
        let secret = item.get("secretKeyRef")?;
        let (secret_name, key) = (secret.get("name")?.text()?, secret.get("key")?.text()?);
        let env = item.get("envRef")?.text()?;
        let name = item.get("name")?.text()?;
        let value = item.get("value")?.any();
        // If there is no literal value, an environment variable is preferred to a secret.
        let reference = if value.is_none() && !env.is_empty() {
            Some(Reference::Env(env))
        } else if !secret_name.is_empty() {
            Some(Reference::Secret { name: secret_name, key })
        } else {
            None
        };
        Ok(Self { name, value, reference })
    }
}

impl fmt::Debug for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Item")
            .field("name", &self.name)
            .field("reference", &self.reference)
            .finish_non_exhaustive()
    }
}

/// Warns of unknown fields. A misspelt `scopes` would open the component to every app.
fn warn_of_others(path: &str, map: &Field<'_>, known: &[&str], origin: &Origin) {
    for key in map.others(known) {
        match nearest(&key.to_lowercase(), known.iter().copied()) {
            Some(nearest) => {
                warn!(%origin, "unknown field {path}{key} is ignored; did you mean {nearest}?");
            }
            None => warn!(%origin, "unknown field {path}{key} is ignored"),
        }
    }
}

fn checked_name(field: &Field<'_>) -> Result<String, Fault> {
    let name = field.text()?;
    if name.is_empty() {
        return Err(field.must("name the component"));
    }
    if name == "." || name == ".." || name.contains(['/', '%']) {
        return Err(
            field.must("be usable in a URL: not \".\" or \"..\", without \"/\" and \"%\"")
        );
    }
    Ok(name)
}
