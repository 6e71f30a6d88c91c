//! What must hold of component YAML; see [`crate::fuzzing`].
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a broken property panics")]

use std::{path::PathBuf, sync::Arc};

use futures_util::FutureExt as _;

use super::{Component, Environment, NoSecrets, document, folder::read_file_text, yaml};
use crate::{backend::Kind, lock::LockError};

/// A file.
pub(crate) fn yaml(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let file = Arc::new(PathBuf::from("f.yaml"));
    let (components, problems) = read_file_text(&file, text);
    // YAML also breaks lines at a lone carriage return.
    let lines = text.matches(['\n', '\r']).count() + 1;
    for problem in &problems {
        // What is missing at the end is missed on the line after the last.
        assert!(
            problem.fault.line.is_none_or(|line| (1..=lines + 1).contains(&line)),
            "{problem}"
        );
        assert!(!problem.fault.text.is_empty());
    }
    assert_eq!(
        (&components, &problems),
        (&read_file_text(&file, text).0, &read_file_text(&file, text).1)
    );
    for document in document::split(text) {
        tree(document.text);
    }
    let around = Environment::with_env(Some("app"), |name| {
        ["NAMESPACE", "POD_NAME", "HOST"].contains(&name).then(|| "value".to_owned())
    });
    for component in &components {
        properties(component, &around);
    }
}

/// JSON is YAML: what a document says as JSON, it says again.
fn tree(text: &str) {
    let Ok(node) = yaml::read(text, 1) else { return };
    let json = node.to_json();
    let parsed: Result<serde_json::Value, _> = serde_json::from_str(&json);
    assert!(parsed.is_ok() || json.len() > 100_000, "{json:?} is no JSON: {parsed:?}");
    // YAML's keys have a limit, and its number has no minus before zero.
    if let Ok(again) = yaml::read(&json, 1)
        && !json.contains("-0")
    {
        assert_eq!(again.to_json(), json);
    }
}

fn properties(component: &Component, around: &Environment) {
    assert!(!component.name.is_empty() && !component.name.contains(['/', '%']));
    assert!(component.says_the_same_as(component) && !component.init_timeout.is_zero());
    let read = component.properties(around, &NoSecrets).now_or_never().expect("nobody to ask");
    let Ok(properties) = read else { return };
    assert!(properties.len() <= component.items.len());
    let kind = component.lock_type().and_then(|name| Kind::named(&name));
    match kind.map(|kind| kind.check(properties)) {
        None | Some(Ok(_) | Err(LockError::InvalidMetadata(_))) => {}
        Some(Err(other)) => panic!("bad metadata are told as {other:?}"),
    }
}
