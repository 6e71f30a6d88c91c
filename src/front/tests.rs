//! A front over the memory store, and clients that go away or retry.

use std::{future::ready, net::SocketAddr, sync::Arc, time::Duration};

use leasehold_lock::{Clock, Store};
use leasehold_memory as memory;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::watch,
    time::{Instant, sleep, timeout},
};

use super::{
    Front, FrontArgs,
    locks::Locks,
    verb::{Outcome, Pair, Verb},
};

const SOON: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
const TAKE: [&str; 5] = ["SET", "k", "mine", "PX", "60000"];
const RELEASE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then
    return redis.call('DEL', KEYS[1]) else return 0 end";

/// A front, and a gate that holds its commands back while it is closed.
struct Rig {
    _front: Front,
    address: SocketAddr,
    is_shut: watch::Sender<bool>,
    /// How many commands have asked for the store.
    asked: watch::Receiver<u64>,
}

impl Rig {
    async fn start() -> Self {
        let store = memory::KIND.open([], Clock::system(), None).await.unwrap();
        let args = FrontArgs {
            metrics: leasehold_metrics::MetricsArgs::default(),
            store: "locks".into(),
            resources_path: Vec::new(),
            listen: Some("127.0.0.1:0".parse().unwrap()),
            unix_socket: None,
            password_file: None,
            tls_cert: None,
            tls_key: None,
            tls_client_ca: None,
            allow_delete: false,
        };
        let (is_shut, opened) = watch::channel(false);
        let (ask, asked) = watch::channel(0);
        let find = Arc::new(move || {
            ask.send_modify(|asked| *asked += 1);
            let (store, mut opened) = (store.clone(), opened.clone());
            Box::pin(async move {
                let _ = opened.wait_for(|is_shut| !is_shut).await;
                Ok(store)
            }) as _
        });
        let front = Front::start(args.options().unwrap(), find).await.unwrap();
        let address = front.addresses()[0];
        Self { _front: front, address, is_shut, asked }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends a command over a new connection; returns its reply.
    async fn ask(&self, words: &[&str]) -> String {
        ask(&mut self.connect().await, words).await
    }

    async fn take(&self, value: &str) -> String {
        self.ask(&["SET", "k", value, "NX", "PX", "60000"]).await
    }

    /// Retries until the value has the lock.
    async fn takes_soon(&self, value: &str) -> bool {
        let give_up = Instant::now() + SOON;
        while self.take(value).await != "+OK" {
            if Instant::now() > give_up {
                return false;
            }
            sleep(POLL_INTERVAL).await;
        }
        true
    }
}

async fn send(stream: &mut TcpStream, words: &[&str]) {
    let mut request = format!("*{}\r\n", words.len());
    for word in words {
        request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    stream.write_all(request.as_bytes()).await.unwrap();
}

/// Sends a command; the first line of its reply.
async fn ask(stream: &mut TcpStream, words: &[&str]) -> String {
    send(stream, words).await;
    let mut reply = Vec::new();
    let reading = async {
        while !reply.ends_with(b"\r\n") {
            assert!(stream.read_buf(&mut reply).await.unwrap() > 0, "{reply:?}");
        }
    };
    timeout(SOON, reading).await.expect("no reply");
    String::from_utf8(reply).unwrap().trim_end().to_owned()
}

/// Trap: front 22
#[tokio::test]
async fn a_script_releases_only_the_lock_of_its_value() {
    let rig = Rig::start().await;
    assert_eq!(rig.take("mine").await, "+OK");
    assert_eq!(rig.ask(&["EVAL", RELEASE, "1", "k", "another"]).await, ":0");
    assert_eq!(rig.ask(&["EXISTS", "k"]).await, ":1");
    assert_eq!(rig.ask(&["EVAL", RELEASE, "1", "k", "mine"]).await, ":1");
}

/// Trap: front 10
#[tokio::test]
async fn a_client_that_goes_away_before_its_reply_leaves_nothing_held() {
    let mut rig = Rig::start().await;
    let mut client = rig.connect().await;
    rig.is_shut.send_replace(true);
    send(&mut client, &[&TAKE[..], &["NX"]].concat()).await;
    timeout(SOON, rig.asked.wait_for(|asked| *asked == 1)).await.unwrap().unwrap();
    drop(client);
    // A command that is carried out now was received before the store is found.
    assert_eq!(rig.ask(&["PING"]).await, "+PONG");
    rig.is_shut.send_replace(false);
    for _ in 0..10 {
        assert_eq!(rig.ask(&["EXISTS", "other"]).await, ":0");
    }
    assert!(rig.takes_soon("another").await);
}

/// Trap: front 23
#[tokio::test]
async fn two_programs_that_use_one_value_exclude_each_other() {
    let rig = Rig::start().await;
    let mut client = rig.connect().await;
    assert_eq!(ask(&mut client, &[&TAKE[..], &["NX"]].concat()).await, "+OK");
    client.set_zero_linger().unwrap();
    drop(client);
    // Its program continues over another connection.
    assert_eq!(rig.ask(&[&TAKE[..], &["XX"]].concat()).await, "+OK");
    for _ in 0..20 {
        assert_eq!(rig.take("mine").await, "$-1");
    }
    assert_eq!(rig.ask(&["EVAL", RELEASE, "1", "k", "mine"]).await, ":1");
    assert_eq!(rig.ask(&["EVAL", RELEASE, "1", "k", "mine"]).await, ":0");
}

/// Without connections, so that the order of calls is certain.
fn locks(store: &Store) -> Locks {
    let store = store.clone();
    Locks::new("s", Arc::new(move || Box::pin(ready(Ok(store.clone())))))
}

/// Trap: front 23
#[tokio::test]
async fn a_retry_keeps_its_lock_though_an_earlier_try_is_released() {
    let store = memory::KIND.open([], Clock::system(), None).await.unwrap();
    // The retry reaches the front of another process.
    let locks = locks(&store);
    let elsewhere = self::locks(&Store::new(store.backend(), store.settings().clone()));
    let obtain = async |locks: &Locks, key: &str| {
        let pair = Pair { key: key.parse().unwrap(), value: "mine".parse().unwrap() };
        let verb = Verb::RenewOrAcquire(pair, Duration::from_secs(60));
        locks.carry_out(verb, None).await.unwrap()
    };
    let is_held = async |key: &str| {
        let verb = Verb::Count(vec![key.parse().unwrap()]);
        locks.carry_out(verb, None).await.unwrap().outcome == Outcome::Count(1)
    };
    let (earlier, again) = (obtain(&locks, "k").await, obtain(&elsewhere, "k").await);
    assert_eq!((earlier.outcome, again.outcome), (Outcome::Done, Outcome::Done));
    if let Some(receipt) = again.receipt {
        receipt.accept();
    }
    // Their clients went away before the replies were sent. The first lock is released
    // first.
    drop(earlier.receipt);
    drop(obtain(&locks, "other").await);
    let give_up = Instant::now() + SOON;
    while is_held("other").await {
        assert!(Instant::now() < give_up, "nothing is released");
        sleep(POLL_INTERVAL).await;
    }
    assert!(is_held("k").await);
}
