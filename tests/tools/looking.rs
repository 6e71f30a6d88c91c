//! `list` and `get`.

use serde_json::Value;

use crate::stage::{Stage, eventually, id};

/// The columns of each line, without ages.
fn rows(text: &str) -> Vec<Vec<&str>> {
    let is_age = |cell: &&str| cell.ends_with('s') && cell.starts_with(char::is_numeric);
    text.lines().map(|line| line.split_whitespace().filter(|c| !is_age(c)).collect()).collect()
}

#[tokio::test]
async fn a_table_has_a_line_for_each_resource() {
    let stage = Stage::start().await;
    stage.lock("order-1", "app/pod/invoice").await;
    stage.share("report", "reader-1").await;
    stage.share("report", "reader-2").await;
    let listed = stage.run(&["list"]);
    assert_eq!(listed.status, 0, "{listed:?}");
    assert_eq!(
        rows(&listed.stdout),
        [
            &["RESOURCE", "MODE", "HOLDER", "AGE"][..],
            &["order-1", "exclusive", "app/pod/invoice"],
            &["report", "shared", "reader-1", "+1"],
        ]
    );
}

#[tokio::test]
async fn a_list_can_be_narrowed() {
    let stage = Stage::start().await;
    stage.lock("order-1", "a/1").await;
    stage.lock("order-2", "b/1").await;
    stage.lock("other", "a/1").await;
    stage.run(&["list", "order-", "-o", "name"]).is(0, "order-1\norder-2\n");
    stage.run(&["list", "--holder", "a/", "-o", "name"]).is(0, "order-1\nother\n");
    stage.run(&["list", "--older-than", "1h", "-o", "name"]).is(0, "");
}

#[tokio::test]
async fn the_details_have_what_is_left_and_who_waits() {
    let stage = Stage::start().await;
    stage.lock("order-1", "holder").await;
    let _waiting = stage.wait("order-1", "next");
    eventually("a waiter is shown", || {
        let listed = stage.run(&["list", "--details"]);
        let last = listed.stdout.lines().last().unwrap_or_default().to_owned();
        (last.ends_with(" 1") && last.starts_with("order-1")).then_some(())
    })
    .await;
}

#[tokio::test]
async fn json_is_one_array_of_the_api_s_objects() {
    let stage = Stage::start().await;
    assert_eq!(stage.run(&["list", "-o", "json"]).stdout.trim(), "[]");
    let granted = stage.lock("order-1", "holder").await;
    stage.lock("order-2", "holder").await;
    let listed = stage.run(&["list", "-o", "json"]);
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!(listed[0]["resourceID"], "order-1");
    assert_eq!(listed[0]["grants"][0]["grantID"], id(&granted));
    assert_eq!(listed.as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn an_object_a_line_is_ndjson() {
    let stage = Stage::start().await;
    stage.lock("order-1", "holder").await;
    stage.lock("order-2", "holder").await;
    let listed = stage.run(&["list", "-o", "ndjson"]).stdout;
    let names: Vec<_> = listed
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["resourceID"].clone())
        .collect();
    assert_eq!(names, ["order-1", "order-2"]);
}

#[tokio::test]
async fn a_name_cannot_change_the_terminal() {
    let stage = Stage::start().await;
    stage.lock("evil\u{202e}txt", "\u{200b}holder").await;
    let listed = stage.run(&["list"]).stdout;
    assert!(
        listed.contains(r"evil\u{202e}txt") && listed.contains(r"\u{200b}holder"),
        "{listed}"
    );
    stage.run(&["list", "-o", "name"]).is(0, "evil\u{202e}txt\n");
}

#[tokio::test]
async fn get_shows_who_holds_and_who_waits() {
    let stage = Stage::start().await;
    let granted = stage.lock("order-1", "holder").await;
    let _waiting = stage.wait("order-1", "next");
    let text = eventually("a waiter is shown", || {
        let shown = stage.run(&["get", "order-1", "--waiters"]);
        assert_eq!(shown.status, 0, "{shown:?}");
        shown.stdout.contains("next").then_some(shown.stdout)
    })
    .await;
    assert!(text.contains("holder") && text.contains(&id(&granted)), "{text}");
    let whole = stage.run(&["get", "order-1", "--waiters", "-o", "json"]).stdout;
    let whole: Value = serde_json::from_str(&whole).unwrap();
    assert_eq!(whole["grants"][0]["holder"], "holder");
    assert_eq!(whole["queue"][0]["holder"], "next");
}

#[tokio::test]
async fn get_of_a_free_resource_ends_with_1() {
    let stage = Stage::start().await;
    stage.run(&["get", "order-1"]).is(1, "free, 0 waiting\n");
}

#[tokio::test]
async fn details_are_those_of_the_listed_grants() {
    let stage = Stage::start().await;
    stage.share("report", "a/1").await;
    stage.share("report", "b/1").await;
    let listed = stage.run(&["list", "--holder", "b/", "--details"]).stdout;
    assert!(listed.contains("b/1") && !listed.contains("a/1"), "{listed}");
}
