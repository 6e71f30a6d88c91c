//! The documented properties of a store are those that the code reads.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use std::{collections::BTreeSet, fs, path::Path};

use leasehold_lock::{Kind, properties::Properties};

use leasehold::backend::KINDS;
use serde_yaml_ng::Value;

#[test]
fn a_schema_has_exactly_the_keys_that_are_read() {
    for kind in KINDS.built_in {
        assert_eq!(schema_keys(*kind), read_keys(*kind), "{}", kind.name);
    }
}

#[test]
fn the_keys_that_all_stores_share_are_in_every_schema() {
    for kind in KINDS.built_in {
        let schema = schema_keys(*kind);
        for key in ["ttl", "maxTTL", "maxWaiters", "maxHolders", "operationTimeout"] {
            assert!(schema.contains(key), "{}: {key}", kind.name);
        }
    }
}

#[test]
fn every_key_of_a_schema_is_explained_to_its_users() {
    for kind in KINDS.built_in {
        let page = if kind.name == "memory" { "README.md" } else { &page(*kind) };
        let page = text(page);
        for key in schema_keys(*kind) {
            assert!(page.contains(&format!("`{key}`")), "{}: {key}", kind.name);
        }
    }
}

#[test]
fn the_component_yaml_that_users_copy_sets_only_known_keys() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../components");
    for file in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if file.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let yaml: Value = serde_yaml_ng::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        let kind = yaml["spec"]["type"].as_str().unwrap().strip_prefix("lock.").unwrap();
        let known = schema_keys(KINDS.named(kind).unwrap());
        for item in yaml["spec"]["metadata"].as_sequence().unwrap() {
            let key = item["name"].as_str().unwrap();
            assert!(known.contains(key), "{}: {key}", file.display());
        }
    }
}

fn page(kind: Kind) -> String {
    format!("docs/{}.md", kind.name)
}

fn read_keys(kind: Kind) -> BTreeSet<String> {
    let hosts = [("redisHost", "h"), ("endpoints", "http://h:1")];
    let mut properties =
        Properties::new(hosts.map(|(key, value)| (key.to_owned(), value.to_owned())));
    let _ = properties.settings();
    drop((kind.read)(&mut properties));
    properties.known().map(ToOwned::to_owned).collect()
}

fn schema_keys(kind: Kind) -> BTreeSet<String> {
    let schema = text(&format!("components/schema/{}.metadata.yaml", kind.name));
    let mut keys = BTreeSet::new();
    names(&serde_yaml_ng::from_str(&schema).unwrap(), &mut keys);
    keys
}

fn names(schema: &Value, into: &mut BTreeSet<String>) {
    let items = |key: &str| schema[key].as_sequence().cloned().unwrap_or_default();
    into.extend(items("metadata").iter().map(|item| item["name"].as_str().unwrap().to_owned()));
    for profile in items("authenticationProfiles") {
        names(&profile, into);
    }
}

fn text(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)).unwrap()
}
