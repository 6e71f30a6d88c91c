//! Component YAML, from the text of a file to the properties of a store.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a broken property panics")]

use std::{path::PathBuf, sync::Arc};

use futures_util::FutureExt as _;

use crate::{Component, Environment, NoSecrets, document, folder::read_file_text, yaml};

/// The input is the text of a file.
pub fn component_yaml(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let file = Arc::new(PathBuf::from("f.yaml"));
    let (components, problems) = read_file_text(&file, text);
    // YAML counts a lone carriage return as a line break too.
    let lines = text.matches(['\n', '\r']).count() + 1;
    for problem in &problems {
        // An unexpected end of the file is reported on the line after the last.
        assert!(
            problem.fault.line.is_none_or(|line| (1..=lines + 1).contains(&line)),
            "{problem}"
        );
        assert!(!problem.fault.text.is_empty());
    }
    let again = read_file_text(&file, text);
    assert_eq!((&components, &problems), (&again.0, &again.1));
    for document in document::split(text) {
        tree(document.text);
    }
    let environment = Environment::with_env(Some("app"), |name| {
        ["NAMESPACE", "POD_NAME", "HOST"].contains(&name).then(|| "value".to_owned())
    });
    for component in &components {
        properties(component, &environment);
    }
}

/// JSON is YAML, so a document that was converted to JSON reads as the same document.
fn tree(text: &str) {
    let Ok((node, _)) = yaml::read(text, 1) else { return };
    let json = node.to_json();
    let parsed: Result<serde_json::Value, _> = serde_json::from_str(&json);
    assert!(parsed.is_ok() || json.len() > 100_000, "{json:?} is not JSON: {parsed:?}");
    // YAML limits the length of a key, and reads -0 as 0.
    if let Ok((again, _)) = yaml::read(&json, 1)
        && !json.contains("-0")
    {
        assert_eq!(again.to_json(), json);
    }
}

fn properties(component: &Component, environment: &Environment) {
    assert!(!component.name.is_empty() && !component.name.contains(['/', '%']));
    assert!(component.differences(component).is_empty() && !component.init_timeout.is_zero());
    let read = component
        .properties(environment, &NoSecrets)
        .now_or_never()
        .expect("no secret store is asked");
    assert!(read.is_err() || read.is_ok_and(|read| read.len() <= component.items.len()));
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_seed_breaks_a_property() {
        leasehold_testing::no_seed_breaks("component_yaml", super::component_yaml);
    }
}
