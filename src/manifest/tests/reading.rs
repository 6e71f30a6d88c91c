//! What is read.

use std::{os::unix::fs::symlink, process::Command, sync::mpsc, time::Duration};

use leasehold_manifest::{Environment, Reference, Resources};

use crate::{Folder, component, nowhere};

#[test]
fn every_field_of_a_component_is_read() {
    let folder = Folder::with(&[(
        "all.yaml",
        "# a comment\n---\napiVersion: dapr.io/v1alpha1\nkind: Component\nmetadata:\n  name: all\n\
         \x20 namespace: prod\n  labels: {x: y}\nspec:\n  type: lock.Redis\n  version: V1\n\
         \x20 ignoreErrors: true\n  initTimeout: 1m\n  metadata:\n  - name: redisHost\n\
         \x20   value: localhost:6379\n  - name: redisPassword\n    secretKeyRef: {name: s, key: k}\n\
         \x20 - name: redisDB\n    envRef: DB\nauth:\n  secretStore: vault\nscopes:\n- app\n- 7\n",
    )]);
    let loaded = folder.resources().load().unwrap();
    assert!(loaded.problems.is_empty(), "{:?}", loaded.problems);
    let read = &loaded.components[0];
    assert_eq!((&*read.name, &*read.namespace), ("all", "prod"));
    assert_eq!((&*read.kind, &*read.version), ("lock.Redis", "V1"));
    assert_eq!(read.lock_type().as_deref(), Some("redis"));
    assert!(read.is_first_version() && read.ignore_errors);
    assert_eq!(read.init_timeout, Duration::from_secs(60));
    assert_eq!(read.secret_store, "vault");
    assert_eq!(read.scopes, ["app", "7"]);
    assert_eq!(read.items[0].value.as_deref(), Some("localhost:6379"));
    let secret = Reference::Secret { name: "s".to_owned(), key: "k".to_owned() };
    assert_eq!(read.items[1].reference, Some(secret));
    assert_eq!(read.items[2].reference, Some(Reference::Env("DB".to_owned())));
    assert_eq!(read.waits_for_daprd(&nowhere()).unwrap().name, read.items[1].name);
    assert_eq!(read.to_string(), "all (lock.Redis/V1)");
}

#[test]
fn absent_fields_have_daprs_defaults() {
    let folder = Folder::with(&[(
        "a.yaml",
        "apiVersion: dapr.io/v1alpha1\nkind: Component\nmetadata: {name: 12}\n\
         spec: {type: lock.memory, initTimeout: soon}\n",
    )]);
    let read = folder.resources().load().unwrap().components.remove(0);
    assert_eq!((&*read.name, &*read.namespace, &*read.version), ("12", "", ""));
    assert!(read.is_first_version() && !read.ignore_errors && read.items.is_empty());
    assert_eq!(read.init_timeout, Duration::from_secs(5));
    assert!(read.is_in_scope(Some("anyone")) && read.waits_for_daprd(&nowhere()).is_none());
}

#[test]
fn what_only_daprd_can_resolve_waits_for_it() {
    let here = Environment::with_env(None, |name| (name == "SET").then(|| "1".to_owned()));
    for (item, waits) in [
        ("value: '{appID}'", true),
        ("value: '{namespace}'", true),
        ("secretKeyRef: {name: s}", true),
        ("envRef: UNSET", true),
        ("envRef: DAPR_API_TOKEN", true),
        ("envRef: SET", false),
        ("value: '{uuid}'", true),
        ("value: '{other}'", false),
    ] {
        let folder = Folder::with(&[(
            "a.yaml",
            &component("a", &format!("  metadata: [{{name: k, {item}}}]\n")),
        )]);
        let read = folder.resources().load().unwrap().components.remove(0);
        assert_eq!(read.waits_for_daprd(&here).is_some(), waits, "{item}");
    }
}

#[test]
fn documents_files_and_folders_are_read_in_order() {
    let first = Folder::with(&[
        ("b.yml", &component("three", "")),
        ("a.YAML", &format!("{}---\n{}", component("one", ""), component("two", ""))),
    ]);
    let second = Folder::with(&[("a.yaml", &component("four", ""))]);
    let resources =
        Resources { folders: vec![first.path(), second.path()], environment: nowhere() };
    let loaded = resources.load().unwrap();
    let names: Vec<_> = loaded.components.iter().map(|component| &*component.name).collect();
    assert_eq!(names, ["one", "two", "three", "four"]);
}

#[test]
fn other_files_kinds_and_versions_are_passed_over_in_silence() {
    let folder = Folder::with(&[
        ("a.json", "{"),
        ("notes.txt", "x: ["),
        ("empty.yaml", ""),
        ("comment.yaml", "# only\n---\n---\n"),
        (
            "kind.yaml",
            "apiVersion: dapr.io/v1alpha1\nkind: Configuration\nmetadata: {name: x}\n",
        ),
        ("version.yaml", "apiVersion: dapr.io/v2\nkind: Component\nspec: 5\n"),
        ("k8s.yaml", "apiVersion: v1\nkind: List\nitems: [1]\n"),
    ]);
    std::fs::create_dir(folder.path().join("folder.yaml")).unwrap();
    let loaded = folder.resources().load().unwrap();
    assert!(loaded.components.is_empty() && loaded.problems.is_empty(), "{loaded:?}");
}

/// Nobody writes to it, so reading it would never end.
#[test]
fn a_named_pipe_is_not_read() {
    let folder = Folder::with(&[("b.yaml", &component("beside", ""))]);
    let made = Command::new("mkfifo").arg(folder.path().join("a.yaml")).status();
    assert!(made.unwrap().success());
    let (sender, names) = mpsc::channel();
    std::thread::spawn(move || sender.send(folder.names()));
    assert_eq!(names.recv_timeout(Duration::from_secs(10)).unwrap(), ["beside"]);
}

#[test]
fn a_linked_file_is_read_as_kubernetes_mounts_it() {
    let folder = Folder::with(&[]);
    let mounted = folder.path().join("..data");
    std::fs::create_dir(&mounted).unwrap();
    std::fs::write(mounted.join("a.yaml"), component("linked", "")).unwrap();
    symlink("..data/a.yaml", folder.path().join("a.yaml")).unwrap();
    assert_eq!(folder.names(), ["linked"]);
}

#[test]
fn components_in_the_scope_of_other_apps_are_passed_over() {
    let folder = Folder::with(&[
        ("a.yaml", &component("mine", "scopes: [other, app]\n")),
        ("b.yaml", &component("theirs", "scopes: [other]\n")),
        ("c.yaml", &component("ours", "scopes: []\n")),
    ]);
    assert_eq!(folder.names(), ["mine", "ours"]);
    let for_all = Environment::with_env(None, |_| None);
    let resources = Resources { folders: vec![folder.path()], environment: for_all };
    assert_eq!(resources.load().unwrap().components.len(), 3);
}

#[test]
fn another_namespace_matters_only_where_one_is_set() {
    let prod = component("p", "").replace("name: p", "name: p\n  namespace: prod");
    let folder = Folder::with(&[("a.yaml", &prod), ("b.yaml", &component("none", ""))]);
    assert_eq!(folder.names(), ["p", "none"]);
    for (namespace, names) in [("prod", &["p", "none"][..]), ("test", &["none"])] {
        let environment = Environment::with_env(Some("app"), move |name| {
            (name == "NAMESPACE").then(|| namespace.to_owned())
        });
        let resources = Resources { folders: vec![folder.path()], environment };
        let read: Vec<_> =
            resources.load().unwrap().components.into_iter().map(|one| one.name).collect();
        assert_eq!(read, names, "{namespace}");
    }
}

#[test]
fn a_name_given_twice_is_an_error_that_names_both() {
    let folder = Folder::with(&[
        ("a.yaml", &component("twice", "")),
        ("b.yaml", &format!("x: 1\n---\n{}", component("twice", "scopes: [other]\n"))),
        ("c.yaml", &component("twice", "")),
    ]);
    let error = folder.resources().load().unwrap_err().to_string();
    for part in
        ["a.yaml, document 1", "b.yaml, document 2", "c.yaml, document 1", "twice (lock"]
    {
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[test]
fn a_name_whose_first_bearer_is_out_of_scope_may_be_used_again() {
    let folder = Folder::with(&[
        ("a.yaml", &component("again", "scopes: [other]\n")),
        ("b.yaml", &component("again", "")),
    ]);
    assert_eq!(folder.names(), ["again"]);
}

#[test]
fn a_folder_that_is_not_there_is_an_error_that_names_it() {
    let resources = Resources { folders: vec!["/no/such".into()], environment: nowhere() };
    let error = resources.load().unwrap_err().to_string();
    assert!(error.contains("/no/such"), "{error}");
}
