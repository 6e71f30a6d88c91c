//! The changes that are sent when files change.

use std::time::Duration;

use leasehold_manifest::{Change, Reloads, watch};
use tokio::{sync::mpsc::Receiver, time::timeout};

use crate::{Folder, component};

const LONG: Duration = Duration::from_secs(20);

fn watched(folder: &Folder) -> Receiver<Change> {
    let resources = folder.resources();
    let loaded = resources.load().unwrap();
    watch(resources, &loaded, Reloads::new(|_| ())).unwrap()
}

async fn next(changes: &mut Receiver<Change>) -> (char, String) {
    match timeout(LONG, changes.recv()).await.unwrap().unwrap() {
        Change::Removed(component) => ('-', component.name),
        Change::Set(component) => ('+', component.name),
    }
}

fn is(kind: char, name: &str) -> (char, String) {
    (kind, name.to_owned())
}

#[tokio::test]
async fn additions_changes_and_removals_are_sent() {
    let folder =
        Folder::with(&[("a.yaml", &component("a", "")), ("b.yaml", &component("b", ""))]);
    let mut changes = watched(&folder);
    folder.write("c.yaml", &component("c", ""));
    assert_eq!(next(&mut changes).await, is('+', "c"));
    folder.write("a.yaml", &component("a", "  metadata: [{name: ttl, value: 5s}]\n"));
    assert_eq!(next(&mut changes).await, is('+', "a"));
    folder.remove("b.yaml");
    assert_eq!(next(&mut changes).await, is('-', "b"));
}

#[tokio::test]
async fn a_renamed_component_goes_before_it_comes() {
    let folder = Folder::with(&[("a.yaml", &component("a", ""))]);
    let mut changes = watched(&folder);
    folder.write("a.yaml", &component("aa", ""));
    assert_eq!(next(&mut changes).await, is('-', "a"));
    assert_eq!(next(&mut changes).await, is('+', "aa"));
}

#[tokio::test]
async fn a_file_that_only_moves_or_is_rewritten_changes_nothing() {
    let folder = Folder::with(&[("a.yaml", &component("a", ""))]);
    let mut changes = watched(&folder);
    folder.write("z.yaml", &format!("# moved\n---\n{}", component("a", "")));
    folder.remove("a.yaml");
    folder.write("end.yaml", &component("end", ""));
    assert_eq!(next(&mut changes).await, is('+', "end"));
}

#[tokio::test]
async fn a_broken_file_keeps_what_it_had() {
    let folder =
        Folder::with(&[("a.yaml", &component("a", "")), ("b.yaml", &component("b", ""))]);
    let mut changes = watched(&folder);
    folder.write("a.yaml", "apiVersion: [");
    folder.write("c.yaml", &component("c", ""));
    assert_eq!(next(&mut changes).await, is('+', "c"));
    // It reads as before, so no change is sent.
    folder.write("a.yaml", &component("a", ""));
    folder.remove("b.yaml");
    assert_eq!(next(&mut changes).await, is('-', "b"));
}

#[tokio::test]
async fn a_name_given_twice_changes_nothing_until_it_is_mended() {
    let folder = Folder::with(&[("a.yaml", &component("a", ""))]);
    let mut changes = watched(&folder);
    folder.write("b.yaml", &format!("{}---\n{}", component("a", ""), component("b", "")));
    // A change is sent after two equal readings, which are a second apart.
    let nothing = timeout(Duration::from_secs(4), changes.recv()).await;
    assert!(nothing.is_err(), "{nothing:?}");
    folder.write("b.yaml", &component("b", ""));
    assert_eq!(next(&mut changes).await, is('+', "b"));
}

/// An editor or a deployment writes in several steps.
#[tokio::test]
async fn a_file_that_still_changes_is_not_applied() {
    let folder = Folder::with(&[]);
    let mut changes = watched(&folder);
    for step in 0..6 {
        folder.write("a.yaml", &component(&format!("step-{step}"), ""));
        tokio::time::sleep(Duration::from_millis(600)).await;
    }
    folder.write("a.yaml", &component("end", ""));
    assert_eq!(next(&mut changes).await, is('+', "end"));
}

#[test]
fn differences_name_fields_and_no_values() {
    let read = |text: &str| {
        let folder = Folder::with(&[("a.yaml", text)]);
        folder.resources().load().unwrap().components.remove(0)
    };
    let password =
        "  metadata: [{name: ttl, value: 5s}, {name: redisPassword, value: secret}]\n";
    let (plain, changed) = (read(&component("a", "")), read(&component("a", password)));
    let fields = ["spec.metadata.redisPassword", "spec.metadata.ttl"];
    assert_eq!(changed.differences(&plain), fields);
    assert_eq!(plain.differences(&changed), fields);
    assert!(plain.differences(&plain).is_empty());
}
