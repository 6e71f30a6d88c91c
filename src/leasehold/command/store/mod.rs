//! Opens the store that a command names.

mod environment;
mod url;

use std::path::PathBuf;

use leasehold_lock::{Clock, Kind, LockError, Store};
use leasehold_manifest::{Environment, Resources};
use leasehold_net::inspection::{Inspector, OwnNames};
use leasehold_pluggable::PluggableComponent;
use leasehold_proto::sidecar::{ApiToken, SidecarChannel};
use leasehold_sidecar::app_names::{self, AppNames};
use leasehold_tools::{Locks, ToolError, locks::OfSidecar};

use super::instances;
use crate::backend::KINDS;

type Items = Vec<(String, String)>;

/// The store of a command.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Store")]
pub struct StoreArgs {
    /// The store: redis://HOST:PORT/DATABASE, rediss://…, etcd://HOST:PORT,…/PREFIX,
    /// unix:SOCKET?instance=NAME, dapr:NAME at a sidecar, or a component of --resources-path
    ///
    /// A URL takes the properties of component YAML as query parameters. Its password is that of
    /// LEASEHOLD_PASSWORD_FILE or LEASEHOLD_PASSWORD. A sidecar is found by DAPR_GRPC_ENDPOINT,
    /// or else by DAPR_GRPC_PORT (50001), and called with DAPR_API_TOKEN.
    #[arg(long, env = "LEASEHOLD_STORE", value_name = "STORE")]
    pub store: String,

    /// Component YAML, in which --store is a name; may be repeated
    #[arg(long, value_name = "DIR")]
    pub resources_path: Vec<PathBuf>,

    /// Name resources as the sidecar of this app does; without it names are the store's own
    #[arg(long, value_name = "ID")]
    pub app_id: Option<String>,
}

/// A store that a command has opened.
pub enum Opened {
    /// By this process.
    Own {
        /// The store.
        store: Store,
        /// Its name: that of the component or the instance, or the URL.
        name: String,
        /// The names of the app; `None` if names are the store's own.
        app: Option<AppNames>,
    },
    /// By a sidecar.
    OfSidecar {
        /// The sidecar's gRPC port.
        channel: SidecarChannel,
        /// The name of the store there.
        name: String,
    },
}

impl Opened {
    /// The calls of inspection.
    #[must_use]
    pub fn inspected(self) -> Box<dyn Locks> {
        match self {
            Self::Own { store, name: store_name, app: None } => {
                Box::new(Inspector { store, store_name, names: OwnNames })
            }
            Self::Own { store, name: store_name, app: Some(names) } => {
                Box::new(Inspector { store, store_name, names })
            }
            Self::OfSidecar { channel, name } => Box::new(OfSidecar::new(channel, name)),
        }
    }

    /// Refuses a namespace where only an app has namespaces.
    pub fn check_namespace(&self, namespace: &[String]) -> Result<(), ToolError> {
        if namespace.is_empty() || !matches!(self, Self::Own { app: None, .. }) {
            return Ok(());
        }
        Err(ToolError::usage("--namespace needs --app-id, because only apps have namespaces"))
    }
}

impl StoreArgs {
    /// Opens it.
    pub async fn open(&self) -> Result<Opened, ToolError> {
        if let Some(name) = self.store.strip_prefix("dapr:") {
            return self.of_sidecar(name);
        }
        if let Some(rest) = self.store.strip_prefix("unix:") {
            return self.of_socket(rest).await;
        }
        if self.store.contains("://") {
            let named = url::read(&self.store, KINDS, environment::password()?)?;
            // Parameters may be long, and nobody needs them to know the store.
            let name = self.store.split('?').next().unwrap_or_default();
            return self.of_kind(named.kind, name, named.items).await;
        }
        if self.store == "memory" && self.resources_path.is_empty() {
            return Err(url::memory());
        }
        self.of_component().await
    }

    fn of_sidecar(&self, name: &str) -> Result<Opened, ToolError> {
        if self.app_id.is_some() {
            return Err(ToolError::usage(
                "--app-id cannot be used with dapr:, where names are those of the sidecar's app",
            ));
        }
        let token = ApiToken(environment::api_token()?);
        let channel = SidecarChannel::new(environment::sidecar()?, token);
        Ok(Opened::OfSidecar { channel, name: name.to_owned() })
    }

    /// Attaches to an instance that somebody else has initialised.
    async fn of_socket(&self, rest: &str) -> Result<Opened, ToolError> {
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (own, items): (Items, Items) =
            url::parameters(query)?.into_iter().partition(|(key, _)| key == "instance");
        if let Some((other, _)) = items.iter().find(|(key, _)| !app_names::is_key_prefix(key)) {
            return Err(ToolError::usage(format!(
                "--store: unix: takes the parameters instance and keyPrefix, and no {other}"
            )));
        }
        if path.is_empty() {
            return Err(ToolError::usage("--store: unix: names no socket"));
        }
        let instance = own.into_iter().next().map(|(_, name)| name).unwrap_or_default();
        let app = self.app(&instance, &items)?;
        let store = PluggableComponent::attach(path.into(), &instance).await?;
        Ok(Opened::Own { store, name: instance, app })
    }

    async fn of_component(&self) -> Result<Opened, ToolError> {
        let environment = Environment::of_process(self.app_id.as_deref());
        let resources = Resources { folders: self.resources_path.clone(), environment };
        let (kind, own) = instances::of_component(&resources, &self.store)
            .await
            .map_err(|error| ToolError::usage(error.to_string()))?;
        self.of_kind(kind, &own.name, own.items).await
    }

    async fn of_kind(&self, kind: Kind, name: &str, items: Items) -> Result<Opened, ToolError> {
        let app = self.app(name, &items)?;
        let items: Items =
            items.into_iter().filter(|(key, _)| !app_names::is_key_prefix(key)).collect();
        if kind.url.is_none() {
            return Err(url::memory());
        }
        kind.check(items.clone())?;
        let store = kind.open(items, Clock::system(), None).await;
        let store = store.map_err(|error| refused(kind, error))?;
        Ok(Opened::Own { store, name: name.to_owned(), app })
    }

    /// The names of the app, if there is one.
    fn app(
        &self,
        name: &str,
        items: &[(String, String)],
    ) -> Result<Option<AppNames>, ToolError> {
        let Some(app_id) = &self.app_id else { return Ok(None) };
        let mut pairs = items.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let is_by_name = |(key, value): (&str, &str)| {
            app_names::is_key_prefix(key) && value.eq_ignore_ascii_case("name")
        };
        if self.store.contains(':') && pairs.clone().any(is_by_name) {
            return Err(ToolError::usage(
                "--store: keyPrefix=name needs a component, whose name is the prefix",
            ));
        }
        let names = AppNames::of_items(&mut pairs, name, app_id);
        names.map(Some).map_err(|violation| ToolError::usage(violation.to_string()))
    }
}

/// The error of a store that was not opened: refused credentials have an exit status of their own.
fn refused(kind: Kind, error: LockError) -> ToolError {
    let refusable = kind.url.map(|url| url.refused).unwrap_or_default();
    match &error {
        LockError::InvalidMetadata(violations)
            if violations.iter().any(|violation| refusable.contains(&&*violation.field)) =>
        {
            ToolError::refused(error.to_string())
        }
        _ => error.into(),
    }
}
