//! What clients say before they use locks.

use crate::{
    client::{Client, NULL, Value, bulk, int, ok},
    scripts::RELEASE,
    stage::Stage,
};

async fn client() -> (Stage, Client) {
    let stage = Stage::memory().await;
    let client = stage.client().await;
    (stage, client)
}

/// The SHA-1 of a text that is nowhere.
const NOWHERE: &str = "0123456789012345678901234567890123456789";

#[tokio::test]
async fn hello_tells_a_server_that_clients_accept() {
    let (_stage, mut client) = client().await;
    let Value::Map(told) = client.ask(&["HELLO", "3"]).await else { panic!("no map") };
    for (name, value) in [
        ("server", bulk("redis")),
        ("version", bulk("7.2.4")),
        ("proto", int(3)),
        ("mode", bulk("standalone")),
        ("role", bulk("master")),
        ("modules", Value::Array(Vec::new())),
    ] {
        assert!(told.contains(&(bulk(name), value)), "{name}: {told:?}");
    }
}

#[tokio::test]
async fn hello_of_another_protocol_is_refused_and_changes_nothing() {
    let (_stage, mut client) = client().await;
    for other in ["4", "1", "x", "03"] {
        let told = client.ask(&["HELLO", other, "SETNAME", "x"]).await.error();
        assert_eq!(told, "NOPROTO unsupported protocol version");
    }
    assert_eq!(client.ask_raw(&["CLIENT", "GETNAME"]).await, "$-1\r\n");
}

#[tokio::test]
async fn hello_alone_keeps_the_protocol() {
    let (_stage, mut client) = client().await;
    assert!(client.ask_raw(&["HELLO"]).await.starts_with("*14\r\n"));
    client.ask(&["HELLO", "3"]).await;
    assert!(client.ask_raw(&["HELLO"]).await.starts_with("%7\r\n"));
}

#[tokio::test]
async fn reset_forgets_the_protocol_and_the_name() {
    let (_stage, mut client) = client().await;
    client.ask(&["HELLO", "3", "SETNAME", "app"]).await;
    client.ask(&["RESET"]).await;
    assert_eq!(client.ask_raw(&["CLIENT", "GETNAME"]).await, "$-1\r\n");
}

#[tokio::test]
async fn there_is_one_database() {
    let (_stage, mut client) = client().await;
    assert_eq!(client.ask(&["SELECT", "0"]).await, ok());
    for other in ["1", "-1", "15"] {
        let told = client.ask(&["SELECT", other]).await.error();
        assert!(told.starts_with("ERR DB index is out of range"), "{told}");
    }
}

#[tokio::test]
async fn every_connection_has_an_id_of_its_own() {
    let (stage, mut client) = client().await;
    let one = client.ask(&["CLIENT", "ID"]).await.number();
    let other = stage.client().await.ask(&["CLIENT", "ID"]).await.number();
    assert!(one > 0 && other > one, "{one} {other}");
}

#[tokio::test]
async fn a_name_is_kept_and_may_be_taken_back() {
    let (_stage, mut client) = client().await;
    assert_eq!(client.ask(&["CLIENT", "SETNAME", "app"]).await, ok());
    assert_eq!(client.ask(&["CLIENT", "GETNAME"]).await, bulk("app"));
    client.ask(&["CLIENT", "SETNAME", ""]).await;
    assert_eq!(client.ask(&["CLIENT", "GETNAME"]).await, NULL);
}

#[tokio::test]
async fn a_name_is_of_plain_ascii_and_has_250_bytes_at_most() {
    let (_stage, mut client) = client().await;
    for wrong in ["a b", "a\n", "é", &"x".repeat(251)] {
        let told = client.ask(&["CLIENT", "SETNAME", wrong]).await.error();
        assert!(told.contains("a client's name has at most 250 bytes"), "{told}");
    }
    assert_eq!(client.ask(&["CLIENT", "GETNAME"]).await, NULL);
    assert_eq!(client.ask(&["CLIENT", "SETNAME", &"x".repeat(250)]).await, ok());
}

#[tokio::test]
async fn a_client_may_tell_its_library() {
    let (_stage, mut client) = client().await;
    for words in [["LIB-NAME", "go-redis"], ["LIB-VER", "9.1"]] {
        assert_eq!(client.ask(&["CLIENT", "SETINFO", words[0], words[1]]).await, ok());
    }
}

#[tokio::test]
async fn notifications_of_maintenance_are_an_unknown_subcommand_as_in_redis_7() {
    let (_stage, mut client) = client().await;
    let words = ["CLIENT", "MAINT_NOTIFICATIONS", "on", "moving-endpoint-type", "internal-ip"];
    let told = client.ask(&words).await.error();
    assert!(told.starts_with("ERR unknown subcommand 'MAINT_NOTIFICATIONS'"), "{told}");
}

#[tokio::test]
async fn info_tells_the_sections_that_are_asked_for() {
    let (_stage, mut client) = client().await;
    let server = client.ask(&["INFO", "server"]).await.text();
    assert!(server.contains("redis_version:7.2.4\r\n"), "{server}");
    assert!(!server.contains("role:"), "{server}");
    let replication = client.ask(&["INFO", "REPLICATION"]).await.text();
    assert!(replication.contains("role:master\r\nconnected_slaves:0\r\n"), "{replication}");
    let all = client.ask(&["INFO"]).await.text();
    assert!(all.contains("redis_version:") && all.contains("role:master"), "{all}");
    assert_eq!(client.ask(&["INFO", "keyspace"]).await, bulk(""));
}

#[tokio::test]
async fn no_command_is_described() {
    let (_stage, mut client) = client().await;
    for words in [&["COMMAND"] as &[&str], &["COMMAND", "INFO", "get"], &["COMMAND", "LIST"]] {
        assert_eq!(client.ask(words).await, Value::Array(Vec::new()), "{words:?}");
    }
    assert_eq!(client.ask(&["COMMAND", "COUNT"]).await, int(0));
}

#[tokio::test]
async fn a_loaded_script_is_called_by_its_digest() {
    let (stage, mut client) = client().await;
    let digest = client.ask(&["SCRIPT", "LOAD", RELEASE]).await.text();
    let told = client.ask(&["SCRIPT", "EXISTS", &digest, NOWHERE]).await;
    assert_eq!(told, Value::Array(vec![int(1), int(0)]));
    // Every connection may call it.
    let mut other = stage.client().await;
    assert_eq!(other.ask(&["EVALSHA", &digest, "1", "k", "v"]).await, int(0));
}

#[tokio::test]
async fn a_script_that_was_not_sent_before_is_asked_for() {
    let (_stage, mut client) = client().await;
    let told = client.ask(&["EVALSHA", NOWHERE, "1", "k", "v"]).await.error();
    assert_eq!(told, "NOSCRIPT No matching script. Please use EVAL.");
}

#[tokio::test]
async fn a_script_that_was_evaluated_is_called_by_its_digest() {
    let (_stage, mut client) = client().await;
    client.eval(RELEASE, "k", &["v"]).await;
    let digest = client.ask(&["SCRIPT", "LOAD", RELEASE]).await.text();
    let called = client.ask(&["EVALSHA", &digest.to_uppercase(), "1", "k", "v"]).await;
    assert_eq!(called, int(0));
}

#[tokio::test]
async fn an_unknown_script_is_refused_with_the_number_to_report() {
    let (_stage, mut client) = client().await;
    for words in
        [&["EVAL", "return 1", "1", "k", "v"] as &[&str], &["SCRIPT", "LOAD", "return 1"]]
    {
        let told = client.ask(words).await.error();
        assert!(told.starts_with("ERR leasehold serves locks only: the script "), "{told}");
        assert!(told.contains("report this number"), "{told}");
    }
}

#[tokio::test]
async fn what_is_not_served_is_refused_by_its_name() {
    let (_stage, mut client) = client().await;
    client.take("k", "v").await;
    for words in [
        &["FLUSHALL"] as &[&str],
        &["KEYS", "*"],
        &["SETNX", "k", "x"],
        &["GETDEL", "k"],
        &["EXPIRE", "k", "1"],
        &["PERSIST", "k"],
        &["RENAME", "k", "other"],
        &["SUBSCRIBE", "c"],
        &["CONFIG", "GET", "*"],
        &["TTL", "k"],
        &["FCALL", "f", "0"],
        &["SHUTDOWN"],
    ] {
        let told = client.ask(words).await.error();
        let expected = format!("ERR leasehold serves locks only: {} is not served", words[0]);
        assert!(told.starts_with(&expected), "{told}");
    }
    for words in [["CLIENT", "LIST"], ["SCRIPT", "FLUSH"], ["COMMAND", "GETKEYS"]] {
        let told = client.ask(&words).await.error();
        let expected =
            format!("ERR leasehold serves locks only: {} {} is not served", words[0], words[1]);
        assert_eq!(told, expected);
    }
    assert_eq!(client.ask(&["GET", "k"]).await, bulk("v"));
}

#[tokio::test]
async fn an_unknown_command_with_line_breaks_is_answered_in_one_line() {
    let (_stage, mut client) = client().await;
    let told = client.ask_raw(&["A\r\n+OK\r\nB"]).await;
    assert!(told.contains("is not served"), "{told:?}");
    assert_eq!(client.ask_raw(&["PING"]).await, "+PONG\r\n");
}
