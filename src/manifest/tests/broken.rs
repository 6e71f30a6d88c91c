//! Documents that daprd cannot read either: each is reported with file,
//! document and field, and the others are read.

use crate::{Folder, component};

/// The problem of the second of three documents.
fn problem(document: &str) -> String {
    let text = format!("{}---\n{document}\n---\n{}", component("a", ""), component("b", ""));
    let folder = Folder::with(&[("file.yaml", &text)]);
    let loaded = folder.resources().load().unwrap();
    let names: Vec<_> = loaded.components.iter().map(|component| &*component.name).collect();
    assert_eq!(names, ["a", "b"], "{document}");
    assert_eq!(loaded.problems.len(), 1, "{document}: {:?}", loaded.problems);
    let problem = loaded.problems[0].to_string();
    assert!(problem.contains("file.yaml, document 2"), "{problem}");
    problem
}

/// A whole component, with one field set in flow style.
fn with(field: &str) -> String {
    format!("{{apiVersion: dapr.io/v1alpha1, kind: Component, {field}}}")
}

#[test]
fn a_document_that_is_no_yaml_is_reported_with_its_line() {
    for text in ["a: [1", "a: b: c", "a: 1\n\tb: 2", "a: \"x", "a: *nowhere", "a: {b: 1"] {
        let problem = problem(text);
        assert!(problem.contains("is not YAML"), "{text:?}: {problem}");
        assert!(problem.contains(", line 1") || problem.contains(", line 9"), "{problem}");
    }
}

#[test]
fn a_document_that_is_no_map_is_reported() {
    for text in ["just a text", "- a\n- list", "42"] {
        assert!(problem(text).contains("must be a map"), "{text}");
    }
}

#[test]
fn a_field_of_the_wrong_type_is_reported_by_its_path() {
    let name = "metadata: {name: x}";
    for (fields, path) in [
        ("metadata: x".to_owned(), "metadata must be a map"),
        ("metadata: [x]".to_owned(), "metadata must be a map"),
        ("metadata: {name: [x]}".to_owned(), "metadata.name must be a string"),
        (
            "metadata: {name: x, namespace: {}}".to_owned(),
            "metadata.namespace must be a string",
        ),
        (format!("{name}, spec: x"), "spec must be a map"),
        (format!("{name}, spec: {{type: [lock.x]}}"), "spec.type must be a string"),
        (format!("{name}, spec: {{version: {{}}}}"), "spec.version must be a string"),
        (format!("{name}, spec: {{ignoreErrors: 'true'}}"), "spec.ignoreErrors must be true"),
        (format!("{name}, spec: {{ignoreErrors: 1}}"), "spec.ignoreErrors must be true"),
        (format!("{name}, spec: {{initTimeout: []}}"), "spec.initTimeout must be a string"),
        (format!("{name}, spec: {{metadata: {{a: b}}}}"), "spec.metadata must be a list"),
        (format!("{name}, spec: {{metadata: [a]}}"), "spec.metadata[0] must be a map"),
        (
            format!("{name}, spec: {{metadata: [{{name: a}}, {{name: {{}}}}]}}"),
            "spec.metadata[1].name must be a string",
        ),
        (
            format!("{name}, spec: {{metadata: [{{name: a, secretKeyRef: s}}]}}"),
            "spec.metadata[0].secretKeyRef must be a map",
        ),
        (
            format!("{name}, spec: {{metadata: [{{name: a, secretKeyRef: {{name: []}}}}]}}"),
            "spec.metadata[0].secretKeyRef.name must be a string",
        ),
        (
            format!("{name}, spec: {{metadata: [{{name: a, envRef: [X]}}]}}"),
            "spec.metadata[0].envRef must be a string",
        ),
        (format!("{name}, auth: vault"), "auth must be a map"),
        (format!("{name}, auth: {{secretStore: []}}"), "auth.secretStore must be a string"),
        (format!("{name}, scopes: app"), "scopes must be a list"),
        (format!("{name}, scopes: [{{}}]"), "scopes[0] must be a string"),
    ] {
        let problem = problem(&with(&fields));
        assert!(problem.contains(path), "{fields}: {problem}");
        assert!(problem.contains(", line 9: "), "{problem}");
    }
}

#[test]
fn a_name_that_no_url_can_carry_is_reported() {
    for name in [".", "..", "a/b", "a%2Fb", "''"] {
        let problem = problem(&with(&format!("metadata: {{name: {name}}}")));
        assert!(problem.contains("metadata.name must"), "{name}: {problem}");
    }
    assert!(problem(&with("spec: {}")).contains("metadata.name must"));
}

#[test]
fn a_number_that_json_cannot_represent_is_reported() {
    let item = "spec: {metadata: [{name: a, value: .inf}]}";
    let problem = problem(&with(&format!("metadata: {{name: x}}, {item}")));
    assert!(problem.contains("put it in quotes"), "{problem}");
}

#[test]
fn a_file_that_is_no_text_or_too_long_is_reported_as_a_whole() {
    let folder = Folder::with(&[("good.yaml", &component("good", ""))]);
    std::fs::write(folder.path().join("bytes.yaml"), [0xff, 0xfe, 0x00]).unwrap();
    folder.write("long.yaml", &"#".repeat(1024 * 1024 + 1));
    let loaded = folder.resources().load().unwrap();
    assert_eq!(loaded.components.len(), 1);
    let problems: Vec<_> = loaded.problems.iter().map(ToString::to_string).collect();
    assert!(problems[0].contains("bytes.yaml: cannot be read"), "{problems:?}");
    assert!(problems[1].contains("long.yaml: is longer than"), "{problems:?}");
}
