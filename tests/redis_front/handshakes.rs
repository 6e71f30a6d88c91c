//! The commands of clients before they use locks.

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

/// The SHA-1 of no known text.
const NOWHERE: &str = "0123456789012345678901234567890123456789";

#[tokio::test]
async fn hello_describes_a_server_that_clients_accept() {
    let (_stage, mut client) = client().await;
    let Value::Map(reply) = client.ask(&["HELLO", "3"]).await else { panic!("no map") };
    for (name, value) in [
        ("server", bulk("redis")),
        ("version", bulk("7.2.4")),
        ("proto", int(3)),
        ("mode", bulk("standalone")),
        ("role", bulk("master")),
        ("modules", Value::Array(Vec::new())),
    ] {
        assert!(reply.contains(&(bulk(name), value)), "{name}: {reply:?}");
    }
}

#[tokio::test]
async fn hello_of_another_protocol_is_refused_and_changes_nothing() {
    let (_stage, mut client) = client().await;
    for other in ["4", "1", "x", "03"] {
        let reply = client.ask(&["HELLO", other, "SETNAME", "x"]).await.error();
        assert_eq!(reply, "NOPROTO unsupported protocol version");
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
        let reply = client.ask(&["SELECT", other]).await.error();
        assert!(reply.starts_with("ERR DB index is out of range"), "{reply}");
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
        let reply = client.ask(&["CLIENT", "SETNAME", wrong]).await.error();
        assert!(reply.contains("a client's name has at most 250 bytes"), "{reply}");
    }
    assert_eq!(client.ask(&["CLIENT", "GETNAME"]).await, NULL);
    assert_eq!(client.ask(&["CLIENT", "SETNAME", &"x".repeat(250)]).await, ok());
}

#[tokio::test]
async fn a_client_may_name_its_library() {
    let (_stage, mut client) = client().await;
    for words in [["LIB-NAME", "go-redis"], ["LIB-VER", "9.1"]] {
        assert_eq!(client.ask(&["CLIENT", "SETINFO", words[0], words[1]]).await, ok());
    }
}

#[tokio::test]
async fn notifications_of_maintenance_are_an_unknown_subcommand_as_in_redis_7() {
    let (_stage, mut client) = client().await;
    let words = ["CLIENT", "MAINT_NOTIFICATIONS", "on", "moving-endpoint-type", "internal-ip"];
    let reply = client.ask(&words).await.error();
    assert!(reply.starts_with("ERR unknown subcommand 'MAINT_NOTIFICATIONS'"), "{reply}");
}

#[tokio::test]
async fn info_has_the_requested_sections() {
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
    let reply = client.ask(&["SCRIPT", "EXISTS", &digest, NOWHERE]).await;
    assert_eq!(reply, Value::Array(vec![int(1), int(0)]));
    // Every connection may call it.
    let mut other = stage.client().await;
    assert_eq!(other.ask(&["EVALSHA", &digest, "1", "k", "v"]).await, int(0));
}

#[tokio::test]
async fn a_script_that_was_not_sent_before_is_asked_for() {
    let (_stage, mut client) = client().await;
    let reply = client.ask(&["EVALSHA", NOWHERE, "1", "k", "v"]).await.error();
    assert_eq!(reply, "NOSCRIPT No matching script. Please use EVAL.");
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
        let reply = client.ask(words).await.error();
        assert!(reply.starts_with("ERR leasehold serves locks only: the script "), "{reply}");
        assert!(reply.contains("report this number"), "{reply}");
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
        let reply = client.ask(words).await.error();
        let expected = format!("ERR leasehold serves locks only: {} is not served", words[0]);
        assert!(reply.starts_with(&expected), "{reply}");
    }
    for words in [["CLIENT", "LIST"], ["SCRIPT", "FLUSH"], ["COMMAND", "GETKEYS"]] {
        let reply = client.ask(&words).await.error();
        let expected =
            format!("ERR leasehold serves locks only: {} {} is not served", words[0], words[1]);
        assert_eq!(reply, expected);
    }
    assert_eq!(client.ask(&["GET", "k"]).await, bulk("v"));
}

#[tokio::test]
async fn an_unknown_command_with_line_breaks_is_answered_in_one_line() {
    let (_stage, mut client) = client().await;
    let reply = client.ask_raw(&["A\r\n+OK\r\nB"]).await;
    assert!(reply.contains("is not served"), "{reply:?}");
    assert_eq!(client.ask_raw(&["PING"]).await, "+PONG\r\n");
}
