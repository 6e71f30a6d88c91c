//! Templates in the values of properties.

use uuid::Uuid;

use super::environment::Environment;

/// How many `{uuid}` a value may have. Each is replaced by a UUID of its own.
const UUIDS_MAX: usize = 1_000;

/// Replaces `{uuid}`, `{podName}`, `{namespace}` and `{appID}`.
pub(super) fn fill_in(mut value: String, environment: &Environment) -> Result<String, String> {
    if value.matches("{uuid}").count() > UUIDS_MAX {
        return Err(format!("has {{uuid}} more than {UUIDS_MAX} times"));
    }
    while value.contains("{uuid}") {
        value = value.replacen("{uuid}", &Uuid::new_v4().to_string(), 1);
    }
    if value.contains("{podName}") {
        let Some(pod) = &environment.pod_name else {
            return Err("refers to {podName}, but POD_NAME is not set; set it".to_owned());
        };
        value = value.replace("{podName}", pod);
    }
    if !names_app(&value) {
        return Ok(value);
    }
    let Some(app_id) = &environment.app_id else {
        return Err("refers to the app's ID, which is known to a sidecar only".to_owned());
    };
    Ok(value.replace("{namespace}", &environment.namespaced(app_id)).replace("{appID}", app_id))
}

/// Whether a value has a template of any kind.
pub(super) fn has_template(value: &str) -> bool {
    names_app(value) || value.contains("{uuid}") || value.contains("{podName}")
}

/// Whether a value depends on the app's ID.
fn names_app(value: &str) -> bool {
    value.contains("{namespace}") || value.contains("{appID}")
}
