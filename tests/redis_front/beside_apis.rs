//! A front and a sidecar on one server: both lock the same resources.

use leasehold_testkit::{leasehold::Leasehold, redis::RedisServer};
use serde_json::{Value as Json, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    binary::Binary,
    client::{NULL, int, ok},
    scripts::DAPRD_UNLOCK,
};

/// The store's name of the sidecar's resource `k`.
const KEY: &str = "lock||k";

struct Both {
    front: Binary,
    http: std::net::SocketAddr,
    _sidecar: Leasehold,
    _server: RedisServer,
}

impl Both {
    async fn start() -> Self {
        let server = RedisServer::start();
        let host = server.address();
        let front = Binary::over("redis", &[("redisHost", &host)], &[]).await;
        let mut sidecar = Leasehold::sidecar(front.yaml(), &[], &[]);
        let (_, http) = sidecar.listening().await.unwrap();
        Self { front, http, _sidecar: sidecar, _server: server }
    }

    /// One call over HTTP; the body of the answer.
    async fn call(&self, head: &str, body: &Json) -> String {
        let body = body.to_string();
        let mut stream = TcpStream::connect(self.http).await.unwrap();
        let request = format!(
            "{head} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\nConnection: close\r\n\r\n\
             {body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    }

    async fn try_lock(&self, owner: &str) -> Json {
        let body = json!({"resourceId": "k", "lockOwner": owner, "expiryInSeconds": 60});
        let reply = self.call("POST /v1.0-alpha1/lock/lockstore", &body).await;
        serde_json::from_str(&reply).unwrap()
    }

    async fn unlock(&self, owner: &str) -> Json {
        let body = json!({"resourceId": "k", "lockOwner": owner});
        let reply = self.call("POST /v1.0-alpha1/unlock/lockstore", &body).await;
        serde_json::from_str(&reply).unwrap()
    }
}

#[tokio::test]
async fn a_lock_of_alpha1_excludes_and_is_unlocked_by_the_script_of_daprd() {
    let both = Both::start().await;
    let mut client = both.front.client().await;
    assert_eq!(both.try_lock("me").await, json!({"success": true}));
    assert_eq!(client.take(KEY, "me").await, NULL);
    assert_eq!(client.eval(DAPRD_UNLOCK, KEY, &["other"]).await, int(-2));
    assert_eq!(client.eval(DAPRD_UNLOCK, KEY, &["me"]).await, int(1));
    assert_eq!(both.try_lock("you").await, json!({"success": true}));
}

#[tokio::test]
async fn a_lock_of_a_client_excludes_and_is_unlocked_by_alpha1() {
    let both = Both::start().await;
    let mut client = both.front.client().await;
    assert_eq!(client.take(KEY, "me").await, ok());
    assert_eq!(both.try_lock("me").await, json!({"success": false}));
    assert_eq!(both.unlock("other").await, json!({"status": 2}));
    assert_eq!(both.unlock("me").await, json!({"status": 0}));
    assert_eq!(client.take(KEY, "you").await, ok());
}

#[tokio::test]
async fn an_inspection_shows_the_holder_of_a_clients_lock_and_not_its_value() {
    let both = Both::start().await;
    let mut client = both.front.client().await;
    client.ask(&["CLIENT", "SETNAME", "invoices"]).await;
    client.take(KEY, "the-secret-value").await;
    for path in ["/v1.0-alpha2/locks/lockstore", "/v1.0-alpha2/lock/lockstore/k"] {
        let reply = both.call(&format!("GET {path}"), &json!({})).await;
        assert!(reply.contains("redis/invoices"), "{path}: {reply}");
        assert!(!reply.contains("the-secret-value"), "{path}: {reply}");
    }
}
