//! `force-unlock`.

use crate::stage::{Stage, id};

const FREE: &str = "free, 0 waiting\n";

#[tokio::test]
async fn a_lock_is_shown_and_ended() {
    let stage = Stage::start().await;
    let granted = stage.lock("order-1", "invoice").await;
    let ended = stage.run(&["force-unlock", "order-1", "--yes", "--reason", "stuck"]);
    for part in ["order-1", "invoice", &id(&granted), "stuck"] {
        ended.says(0, part);
    }
    assert_eq!(stage.run(&["get", "order-1"]).stdout, FREE);
}

#[tokio::test]
async fn the_default_reason_names_the_user_and_the_host() {
    let stage = Stage::start().await;
    stage.lock("order-1", "invoice").await;
    let mut command = stage.command(&["force-unlock", "order-1", "--yes"]);
    crate::stage::ended(command.env("USER", "ada")).says(0, "reason: ada@");
}

#[tokio::test]
async fn without_an_answer_nothing_is_ended() {
    let stage = Stage::start().await;
    stage.lock("order-1", "invoice").await;
    stage.run(&["force-unlock", "order-1"]).says(64, "--yes");
    assert_eq!(stage.run(&["get", "order-1"]).status, 0);
}

#[tokio::test]
async fn a_dry_run_only_shows() {
    let stage = Stage::start().await;
    stage.lock("order-1", "invoice").await;
    stage.run(&["force-unlock", "order-1", "--dry-run"]).says(0, "invoice");
    assert_eq!(stage.run(&["get", "order-1"]).status, 0);
}

#[tokio::test]
async fn a_free_resource_ends_with_1() {
    let stage = Stage::start().await;
    stage.run(&["force-unlock", "order-1", "--yes"]).says(1, "nothing is held");
    stage.run(&["force-unlock", "--prefix", "order-", "--yes"]).says(1, "nothing is held");
}

#[tokio::test]
async fn one_grant_among_several_can_be_named() {
    let stage = Stage::start().await;
    let first = stage.share("report", "reader-1").await;
    stage.share("report", "reader-2").await;
    let ended = stage.run(&["force-unlock", "report", "--grant", &id(&first), "--yes"]);
    ended.says(0, "reader-1");
    let left = stage.run(&["get", "report"]).stdout;
    assert!(left.contains("reader-2") && !left.contains("reader-1"), "{left}");
}

#[tokio::test]
async fn a_grant_that_has_passed_on_is_not_ended() {
    let stage = Stage::start().await;
    stage.lock("order-1", "invoice").await;
    let other = "0".repeat(32);
    let ended = stage.run(&["force-unlock", "order-1", "--grant", &other, "--yes"]);
    assert_eq!(ended.status, 1, "{ended:?}");
    assert_eq!(stage.run(&["get", "order-1"]).status, 0);
}

#[tokio::test]
async fn a_prefix_ends_all_that_begin_so() {
    let stage = Stage::start().await;
    for name in ["order-1", "order-2", "other"] {
        stage.lock(name, "holder").await;
    }
    stage.run(&["force-unlock", "--prefix", "order-", "--yes"]).says(0, "order-2");
    stage.run(&["list", "-o", "name"]).is(0, "other\n");
}

/// The rest is on the second page of the list.
#[tokio::test]
async fn a_prefix_ends_a_thousand_at_a_time_and_says_that_there_are_more() {
    let stage = Stage::start().await;
    stage.lock("other", "holder").await;
    for number in 0..1_001 {
        stage.lock(&format!("order-{number}"), "holder").await;
    }
    let force = ["force-unlock", "--prefix", "order-", "--yes"];
    stage.run(&force).says(0, "There are more: at most 1000 are ended at a time.");
    stage.run(&["list", "-o", "name"]).is(0, "order-999\nother\n");
    stage.run(&force).says(0, "order-999");
    stage.run(&["list", "-o", "name"]).is(0, "other\n");
}

#[tokio::test]
async fn a_resource_or_a_prefix_must_be_named() {
    let stage = Stage::start().await;
    stage.run(&["force-unlock", "--yes"]).says(64, "--prefix");
}

/// An empty variable of a script once ended every lock of the store, or every reader.
#[tokio::test]
async fn an_empty_prefix_name_or_grant_ends_nothing() {
    let stage = Stage::start().await;
    stage.lock("order-1", "holder").await;
    for empty in [&["--prefix", ""][..], &[""], &["order-1", "--grant", ""]] {
        let ended = stage.run(&[&["force-unlock", "--yes"], empty].concat());
        ended.says(64, "it is empty");
    }
    assert_eq!(stage.run(&["get", "order-1"]).status, 0);
}

#[tokio::test]
async fn a_reason_that_the_api_refuses_is_refused() {
    let stage = Stage::start().await;
    stage.lock("order-1", "holder").await;
    let ended = stage.run(&["force-unlock", "order-1", "--yes", "--reason", "a\nb"]);
    ended.says(64, "--reason");
}
