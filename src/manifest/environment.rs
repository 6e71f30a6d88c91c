//! The app and the environment variables that component YAML refers to.

use std::{fmt, sync::Arc};

/// Looks up an environment variable.
type Lookup = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// The app, the namespace and the environment variables that components are read for.
#[derive(Clone)]
pub struct Environment {
    /// The app's ID, for `scopes` and `{appID}`. `None` reads the components of all apps,
    /// whatever their scopes.
    pub app_id: Option<String>,
    /// `NAMESPACE`. `None` if it is unset or empty: then components of every namespace are
    /// read, and `{namespace}` begins with `default`.
    pub namespace: Option<String>,
    /// `POD_NAME`, which fills `{podName}`.
    pub pod_name: Option<String>,
    /// The secret store of components that name none: `kubernetes` in a cluster.
    pub secret_store: Option<String>,
    env: Lookup,
}

impl Environment {
    /// The environment of this process, for the app with this ID or for all apps.
    #[must_use]
    pub fn of_process(app_id: Option<&str>) -> Self {
        Self::with_env(app_id, |name| std::env::var(name).ok())
    }

    /// Like [`Environment::of_process`], with `env` to look up variables.
    pub fn with_env(
        app_id: Option<&str>,
        env: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        let set = |name| env(name).filter(|value| !value.is_empty());
        Self {
            app_id: app_id.map(str::to_owned),
            namespace: set("NAMESPACE"),
            pod_name: set("POD_NAME"),
            secret_store: set("KUBERNETES_SERVICE_HOST").map(|_| "kubernetes".to_owned()),
            env: Arc::new(env),
        }
    }

    /// The value of `{namespace}`: the namespace and the app's ID.
    pub(super) fn namespaced(&self, app_id: &str) -> String {
        format!("{}.{app_id}", self.namespace.as_deref().unwrap_or("default"))
    }

    /// The value of a variable for `envRef`, empty if it is unset. `None` if `envRef` may not
    /// name it: `APP_API_TOKEN`, `DAPR_*`, and, if `DAPR_ENV_KEYS` is set (by the Kubernetes
    /// injector), every variable that is not in its list.
    pub(super) fn env_ref(&self, name: &str) -> Option<String> {
        let upper = name.to_uppercase();
        if upper.is_empty()
            || upper == "APP_API_TOKEN"
            || upper.starts_with("DAPR_")
            || upper.contains(' ')
        {
            return None;
        }
        let listed = match (self.env)("DAPR_ENV_KEYS") {
            Some(keys) if !keys.is_empty() => keys.split(' ').any(|key| key == upper),
            _ => true,
        };
        listed.then(|| (self.env)(name).unwrap_or_default())
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment")
            .field("app_id", &self.app_id)
            .field("namespace", &self.namespace)
            .field("pod_name", &self.pod_name)
            .field("secret_store", &self.secret_store)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(pairs: &'static [(&'static str, &'static str)]) -> Environment {
        Environment::with_env(Some("app"), |name| {
            pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn tokens_and_daprs_own_variables_are_never_read() {
        let environment =
            env(&[("DAPR_API_TOKEN", "t"), ("APP_API_TOKEN", "t"), ("MY_VAR", "v")]);
        for denied in ["DAPR_API_TOKEN", "dapr_x", "APP_API_TOKEN", "app_api_token", "A B", ""]
        {
            assert_eq!(environment.env_ref(denied), None, "{denied}");
        }
        assert_eq!(environment.env_ref("MY_VAR").as_deref(), Some("v"));
        assert_eq!(environment.env_ref("UNSET").as_deref(), Some(""));
    }

    #[test]
    fn only_listed_variables_are_read_if_there_is_a_list() {
        let environment = env(&[("DAPR_ENV_KEYS", "ONE TWO"), ("ONE", "1"), ("THREE", "3")]);
        assert_eq!(environment.env_ref("ONE").as_deref(), Some("1"));
        assert_eq!(environment.env_ref("THREE"), None);
        assert_eq!(environment.env_ref("WO"), None);
    }

    #[test]
    fn an_empty_variable_counts_as_unset() {
        assert_eq!(env(&[("NAMESPACE", "")]).namespace, None);
        assert_eq!(env(&[]).namespaced("app"), "default.app");
        assert_eq!(env(&[("NAMESPACE", "prod")]).namespaced("app"), "prod.app");
    }
}
