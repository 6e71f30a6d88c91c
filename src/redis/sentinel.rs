//! Sentinels, which watch a master and its replicas, and say which server is the master.
//!
//! - `ask`: the question to one Sentinel.
//! - `verdict`: what their answers mean.

mod ask;
mod verdict;

use std::{convert::Infallible, future::ready, time::Duration};

use ::redis::{Client, ConnectionInfo, PushInfo, PushKind, Value};
use futures_util::{
    future::join_all,
    stream::{FuturesUnordered, StreamExt as _},
};
use leasehold_util::retry::Backoff;
use parking_lot::Mutex;
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use self::ask::{NoOpinion, Opinion, ask};
pub(super) use self::verdict::Unresolved;
use super::{
    config::SentinelSetup,
    master::{Master, address_like, connect},
};

/// How long one Sentinel has to answer, with the connection to it.
const ANSWER_MAX: Duration = Duration::from_millis(1500);
/// How much longer than the first answer the others may take, at least. Otherwise they may take
/// twice as long as the first.
const OTHERS_MIN: Duration = Duration::from_millis(300);
/// How often each Sentinel is asked, whether or not it has published anything.
const HEARTBEAT: Duration = Duration::from_secs(5);
const RECONNECT_DELAY_MIN: Duration = Duration::from_millis(100);
const RECONNECT_DELAY_MAX: Duration = Duration::from_secs(5);
/// How long a Sentinel that was cut off, and still names the master of an older configuration,
/// is not believed. By then a former master that the others reach is a replica.
const OUTDATED_FOR: Duration = Duration::from_secs(30);

/// What Sentinels publish once a replica is the new master: the first comes from the Sentinel
/// that promoted it, the second from each Sentinel when it knows.
const CHANNELS: [&str; 2] = ["+promoted-slave", "+switch-master"];

/// The Sentinels of one master.
pub(super) struct Sentinels {
    sentinels: Vec<Client>,
    master_name: String,
    /// How to connect to the master, but for its address.
    master: ConnectionInfo,
    /// How often there was a reason to ask for the master again.
    notices: watch::Sender<u64>,
    /// The greatest epoch of a configuration, and when it was last heard of.
    newest: Mutex<Option<(u64, Instant)>>,
}

impl Sentinels {
    pub(super) fn new(setup: SentinelSetup) -> Self {
        let SentinelSetup { sentinels, master_name, master } = setup;
        Self {
            sentinels,
            master_name,
            master,
            notices: watch::Sender::default(),
            newest: Mutex::default(),
        }
    }

    /// Asks all Sentinels at once for the master. The one that knows the newest configuration
    /// is right.
    pub(super) async fn master(&self) -> Result<Master, Unresolved> {
        let notices = *self.notices.borrow();
        let opinion = verdict::of(&self.master_name, &self.ask_all().await)?;
        if self.is_outdated(opinion.epoch) {
            return Err(Unresolved::outdated());
        }
        let address = address_like(self.master.addr(), opinion.host, opinion.port);
        Client::open(self.master.clone().set_addr(address))
            .map(|client| Master { client, notices, in_cluster: false })
            .map_err(|error| Unresolved::unavailable(error.to_string()))
    }

    /// Returns once there were more notices than `seen`.
    pub(super) async fn noticed(&self, seen: u64) {
        // It can only fail without a sender, which is in `self`.
        let _ = self.notices.subscribe().wait_for(|notices| *notices > seen).await;
    }

    /// The answers, each with the address of its Sentinel. Those that come long after the first
    /// opinion are missing.
    async fn ask_all(&self) -> Vec<(String, Result<Opinion, NoOpinion>)> {
        let begun = Instant::now();
        let asked = self.sentinels.iter().map(|sentinel| async move {
            let answer = async {
                let mut connection = connect(sentinel, |_| {}).await?;
                ask(&mut connection, &self.master_name).await
            };
            let answer = timeout(ANSWER_MAX, answer).await.unwrap_or(Err(NoOpinion::Late));
            (name(sentinel), answer)
        });
        let mut asked: FuturesUnordered<_> = asked.collect();
        let mut answers = Vec::new();
        while let Some(answer) = asked.next().await {
            let is_opinion = answer.1.is_ok();
            answers.push(answer);
            if is_opinion {
                let rest = asked.for_each(|answer| {
                    answers.push(answer);
                    ready(())
                });
                let _ = timeout(OTHERS_MIN.max(begun.elapsed()), rest).await;
                break;
            }
        }
        answers
    }

    /// Whether a newer configuration was known a short time ago.
    fn is_outdated(&self, epoch: u64) -> bool {
        let mut newest = self.newest.lock();
        if let Some((known, heard)) = *newest
            && epoch < known
            && heard.elapsed() < OUTDATED_FOR
        {
            return true;
        }
        *newest = Some((epoch, Instant::now()));
        false
    }

    /// Records that a Sentinel knows a configuration of this epoch. Returns whether it is the
    /// newest that is known.
    fn hear_of(&self, epoch: u64) -> bool {
        let mut newest = self.newest.lock();
        let Some((known, heard)) = &mut *newest else { return false };
        let is_newest = epoch == *known;
        if is_newest {
            *heard = Instant::now();
        }
        is_newest
    }

    /// Follows what the Sentinels publish.
    pub(super) async fn follow(&self) {
        join_all(self.sentinels.iter().map(|sentinel| self.follow_one(sentinel))).await;
    }

    async fn follow_one(&self, sentinel: &Client) {
        let address = name(sentinel);
        // A Sentinel that is missing at first was missed by Init, too.
        let mut is_reported = false;
        let mut backoff = Backoff::new(RECONNECT_DELAY_MIN, RECONNECT_DELAY_MAX);
        loop {
            let mut has_answered = false;
            let Err(why) = self.listen(sentinel, &mut has_answered).await;
            if has_answered {
                backoff = Backoff::new(RECONNECT_DELAY_MIN, RECONNECT_DELAY_MAX);
            }
            if has_answered || !is_reported {
                is_reported = true;
                warn!(sentinel = address, %why, "a Sentinel cannot be followed");
            } else {
                debug!(sentinel = address, %why, "a Sentinel cannot be followed");
            }
            backoff.pause().await;
        }
    }

    /// Listens to a Sentinel until its connection is lost. What it publishes is a notice, and so
    /// is an answer that is not the one before.
    async fn listen(
        &self,
        sentinel: &Client,
        has_answered: &mut bool,
    ) -> Result<Infallible, NoOpinion> {
        let lost = CancellationToken::new();
        let published = {
            let (lost, notices) = (lost.clone(), self.notices.clone());
            let master_name = self.master_name.clone();
            move |push: PushInfo| match push.kind {
                PushKind::Disconnection => lost.cancel(),
                PushKind::Message if concerns(&push.data, &master_name) => {
                    notices.send_modify(|notices| *notices += 1);
                }
                _ => {}
            }
        };
        let opening = async {
            let mut connection = connect(sentinel, published).await?;
            connection.subscribe(CHANNELS.as_slice()).await?;
            Ok::<_, NoOpinion>(connection)
        };
        let mut connection =
            timeout(ANSWER_MAX, opening).await.unwrap_or(Err(NoOpinion::Late))?;
        let mut before = None;
        loop {
            let answer = timeout(ANSWER_MAX, ask(&mut connection, &self.master_name)).await;
            let opinion = answer.unwrap_or(Err(NoOpinion::Late))?;
            let is_known = self.hear_of(opinion.epoch);
            if !std::mem::replace(has_answered, true) {
                info!(sentinel = name(sentinel), "following a Sentinel");
            }
            // What it published before it was followed may have been missed.
            if before.as_ref().map_or(!is_known, |before| *before != opinion) {
                self.notices.send_modify(|notices| *notices += 1);
            }
            before = Some(opinion);
            tokio::select! {
                () = sleep(HEARTBEAT) => {}
                () = lost.cancelled() => return Err(NoOpinion::Lost),
            }
        }
    }
}

fn name(sentinel: &Client) -> String {
    sentinel.get_connection_info().addr().to_string()
}

/// Whether a message is about this master. Sentinels watch several.
///
/// ```text
/// +switch-master    NAME 10.0.0.1 6379 10.0.0.2 6379
/// +promoted-slave   slave 10.0.0.2:6379 10.0.0.2 6379 @ NAME 10.0.0.1 6379
/// ```
fn concerns(data: &[Value], master_name: &str) -> bool {
    let [Value::BulkString(_), Value::BulkString(message)] = data else { return false };
    message.split(|byte| *byte == b' ').any(|word| word == master_name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> [Value; 2] {
        [Value::BulkString(b"channel".to_vec()), Value::BulkString(text.into())]
    }

    #[tokio::test(start_paused = true)]
    async fn an_older_configuration_is_believed_once_the_newer_was_not_heard_of_for_long() {
        let setup = SentinelSetup {
            sentinels: Vec::new(),
            master_name: "main".into(),
            master: ::redis::IntoConnectionInfo::into_connection_info("redis://h").unwrap(),
        };
        let sentinels = Sentinels::new(setup);
        assert!(!sentinels.is_outdated(5));
        sleep(OUTDATED_FOR / 2).await;
        assert!(sentinels.is_outdated(4));
        assert!(sentinels.hear_of(5) && !sentinels.hear_of(4));
        sleep(OUTDATED_FOR / 2).await;
        assert!(sentinels.is_outdated(4));
        sleep(OUTDATED_FOR / 2).await;
        assert!(!sentinels.is_outdated(4));
    }

    #[test]
    fn only_messages_about_the_master_are_notices() {
        for text in [
            "main 10.0.0.1 6379 10.0.0.2 6379",
            "slave 10.0.0.2:6379 10.0.0.2 6379 @ main 10.0.0.1 6379",
        ] {
            assert!(concerns(&message(text), "main"), "{text}");
            assert!(!concerns(&message(text), "mai"), "{text}");
        }
        assert!(!concerns(&[], "main"));
    }
}
