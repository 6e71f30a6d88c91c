//! How much of what Redis masters wrote had reached the replica that replaces one.
//!
//! Each server is asked directly, past the proxies. What a master had answered before it was
//! asked is within the offset that it then names. A replica that becomes a master names the
//! offset up to which it had received the writes of the former one.

use std::{
    collections::{HashMap, HashSet},
    ops::RangeInclusive,
    sync::Arc,
    time::Duration,
};

use anyhow::ensure;
use parking_lot::Mutex;
use redis::{aio::MultiplexedConnection, cmd};
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::clock::now_ns;

const INTERVAL: Duration = Duration::from_millis(5);
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// How many samples of a history are kept: those of the last minutes.
const SAMPLES_MAX: usize = 1 << 16;

/// Asks servers for their offsets until it is dropped.
#[derive(Debug)]
pub(super) struct Offsets {
    seen: Arc<Mutex<Seen>>,
    _tasks: Vec<AbortOnDropHandle<()>>,
}

/// A replica became a master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promotion {
    /// The number of the server.
    pub server: usize,
    /// When it was last seen as a replica.
    pub after_ns: u64,
    /// When it was first seen as a master.
    pub by_ns: u64,
    /// What was answered before this moment it had received.
    pub kept_ns: u64,
    /// The slots that it took over; all keys if absent.
    pub slots: Option<Vec<RangeInclusive<u16>>>,
}

#[derive(Debug, Default)]
struct Seen {
    /// For each history of writes, by its ID: when its master was asked, and its offset.
    masters: HashMap<String, Vec<(u64, i64)>>,
    /// When each server was last asked and was a replica.
    replicas: HashMap<usize, u64>,
    promoted: Vec<Promoted>,
    /// The histories that began with a promotion.
    begun: HashSet<String>,
}

#[derive(Debug)]
struct Promoted {
    server: usize,
    after_ns: u64,
    by_ns: u64,
    /// The history that it followed, and up to where.
    history: String,
    received: i64,
}

/// The answer of a server.
#[derive(Debug, PartialEq, Eq)]
struct Sample {
    is_master: bool,
    history: String,
    offset: i64,
    /// The history that it followed before it became a master, and the first offset that it
    /// had not received; `-1` if it followed none.
    former: String,
    missing: i64,
}

impl Offsets {
    /// Begins to ask the servers with these URLs.
    pub(super) fn watch(urls: &[String]) -> Self {
        let seen = Arc::<Mutex<Seen>>::default();
        let tasks = urls.iter().enumerate().map(|(server, url)| {
            let task = ask(server, url.clone(), Arc::clone(&seen));
            AbortOnDropHandle::new(tokio::spawn(task))
        });
        let tasks = tasks.collect();
        Self { seen, _tasks: tasks }
    }

    /// The promotions since the last call. Fails if it is not known what one of them lost.
    pub(super) fn promotions(&self) -> anyhow::Result<Vec<Promotion>> {
        self.seen.lock().promotions()
    }
}

impl Seen {
    fn add(&mut self, server: usize, asked_ns: u64, answered_ns: u64, sample: Sample) {
        if !sample.is_master {
            self.replicas.insert(server, asked_ns);
            return;
        }
        // A server that was started as a master has received nothing.
        if sample.missing > 0 && self.begun.insert(sample.history.clone()) {
            self.promoted.push(Promoted {
                server,
                after_ns: self.replicas.get(&server).copied().unwrap_or(0),
                by_ns: answered_ns,
                history: sample.former,
                received: sample.missing - 1,
            });
        }
        let asked = self.masters.entry(sample.history).or_default();
        match asked.last_mut() {
            // It has written nothing in between.
            Some((last_ns, offset)) if *offset == sample.offset => *last_ns = asked_ns,
            _ => asked.push((asked_ns, sample.offset)),
        }
        if asked.len() > SAMPLES_MAX {
            asked.drain(..SAMPLES_MAX / 2);
        }
    }

    fn promotions(&mut self) -> anyhow::Result<Vec<Promotion>> {
        let promoted = std::mem::take(&mut self.promoted);
        let with_kept = promoted.into_iter().map(|promoted| {
            let Promoted { server, after_ns, by_ns, history, received } = promoted;
            let asked = self.masters.get(&history).map_or(&[][..], Vec::as_slice);
            // Otherwise everything would be excused.
            ensure!(
                !asked.is_empty(),
                "server {server} replaced a master that was never asked"
            );
            let received = asked.partition_point(|(_, offset)| *offset <= received);
            let kept_ns = received.checked_sub(1).map_or(0, |last| asked[last].0);
            Ok(Promotion { server, after_ns, by_ns, kept_ns, slots: None })
        });
        with_kept.collect()
    }
}

/// Asks one server, also after it was restarted.
async fn ask(server: usize, url: String, seen: Arc<Mutex<Seen>>) {
    let Ok(client) = redis::Client::open(url) else { return };
    loop {
        let opened = timeout(ANSWER_WITHIN, client.get_multiplexed_async_connection()).await;
        if let Ok(Ok(mut connection)) = opened {
            while let Some((asked_ns, sample)) = sample(&mut connection).await {
                seen.lock().add(server, asked_ns, now_ns(), sample);
                sleep(INTERVAL).await;
            }
        }
        sleep(INTERVAL).await;
    }
}

async fn sample(connection: &mut MultiplexedConnection) -> Option<(u64, Sample)> {
    let asked_ns = now_ns();
    let mut info = cmd("INFO");
    info.arg("replication");
    let info: String = timeout(ANSWER_WITHIN, info.query_async(connection)).await.ok()?.ok()?;
    Some((asked_ns, read(&info)?))
}

fn read(info: &str) -> Option<Sample> {
    let field = |name: &str| {
        info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    };
    Some(Sample {
        is_master: field("role")? == "master",
        history: field("master_replid")?.to_owned(),
        offset: field("master_repl_offset")?.parse().ok()?,
        former: field("master_replid2")?.to_owned(),
        missing: field("second_repl_offset")?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn master(history: &str, offset: i64) -> Sample {
        Sample {
            is_master: true,
            history: history.into(),
            offset,
            former: "0".into(),
            missing: -1,
        }
    }

    fn replica() -> Sample {
        Sample { is_master: false, ..master("a", 0) }
    }

    #[test]
    fn what_was_answered_before_the_promoted_replicas_last_sample_is_kept() {
        let mut seen = Seen::default();
        for (asked_ns, offset) in [(10, 100), (20, 150), (30, 150), (40, 151)] {
            seen.add(0, asked_ns, asked_ns + 5, master("a", offset));
            seen.add(1, asked_ns + 1, asked_ns + 2, replica());
        }
        let promoted = Sample { former: "a".into(), missing: 151, ..master("b", 160) };
        seen.add(1, 50, 52, promoted);
        let promotion =
            Promotion { server: 1, after_ns: 41, by_ns: 52, kept_ns: 30, slots: None };
        assert_eq!(seen.promotions().unwrap(), [promotion]);
        assert_eq!(seen.promotions().unwrap(), [], "each is reported once");
    }

    #[test]
    fn a_server_that_was_started_as_a_master_was_not_promoted() {
        let mut seen = Seen::default();
        seen.add(0, 10, 11, master("a", 100));
        seen.add(0, 20, 21, master("restarted", 0));
        assert_eq!(seen.promotions().unwrap(), []);
    }

    #[test]
    fn a_replica_that_had_received_no_sample_has_lost_everything() {
        let mut seen = Seen::default();
        seen.add(0, 10, 11, master("a", 100));
        seen.add(1, 20, 21, Sample { former: "a".into(), missing: 51, ..master("b", 60) });
        assert_eq!(seen.promotions().unwrap()[0].kept_ns, 0);
    }

    #[test]
    fn what_a_promotion_lost_is_unknown_if_the_former_master_was_never_asked() {
        let mut seen = Seen::default();
        seen.add(0, 10, 11, master("b", 100));
        seen.add(1, 20, 21, Sample { former: "a".into(), missing: 51, ..master("b", 60) });
        assert!(seen.promotions().is_err());
    }

    #[test]
    fn the_answer_of_a_server_is_read() {
        let info = "# Replication\r\nrole:master\r\nconnected_slaves:0\r\nmaster_replid:b\r\n\
                    master_replid2:a\r\nmaster_repl_offset:60\r\nsecond_repl_offset:51\r\n";
        let sample = Sample { former: "a".into(), missing: 51, ..master("b", 60) };
        assert_eq!(read(info), Some(sample));
        assert_eq!(read("role:master\r\n"), None);
    }
}
