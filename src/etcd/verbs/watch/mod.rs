//! Watching: a copy of all grants of the store, kept by one watch of etcd.
//!
//! It is filled from a list at one revision, and the watch begins at the next one, so that no
//! change falls between them. The watch has a stream of its own, whose large answers come in
//! fragments, so that it does not delay the watches of those who wait for locks. Every
//! failure ends it: the domain then restarts the mirror and begins again. So a lost
//! connection, a compaction and a restored data set are one case.
//!
//! The cause of an end is not reported: a deletion and the end of a lease are the same
//! event.
//!
//! etcd is not asked for previous values. The copy has them: it must know all grants of a
//! resource to count them. etcd would have to read each from its database, and does not have
//! those that were compacted.

mod copy;

use std::{convert::Infallible, time::Duration};

use etcd_client::{Event, EventType, TxnOp, WatchOptions, WatchResponse, WatchStream};
use leasehold_lock::inspect::Mirror;
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

use self::copy::StoreCopy;
use super::{
    inspect::{Inspection, PAGE_KEYS},
    walk::Walk,
};
use crate::{
    client::{failure::Failure, link::Link},
    keys::range_end,
    revision::Revision,
};

/// How long a message of etcd may be. A fragment has at most `--max-request-bytes` (1.5 MiB
/// by default), unless it is one event.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;
/// How late events are at most, as far as is promised.
const EVENTS_WITHIN: Duration = Duration::from_secs(1);

impl Inspection {
    /// Keeps an empty mirror equal to the store until that fails.
    pub(super) async fn keep_mirror(&self, mirror: &Mirror) -> Failure {
        let link = match self.etcd.connection.link(self.step_until()).await {
            Ok(link) => link,
            Err(failure) => return failure,
        };
        let reached = watch::Sender::new(None);
        let result = tokio::select! {
            biased;
            () = link.lost() => Err(Failure::NotSent("the connection to etcd was lost".into())),
            result = self.follow(&link, mirror, &reached) => result,
            result = self.note_complete(mirror, reached.subscribe()) => result,
        };
        match result {
            Ok(never) => match never {},
            Err(failure) => failure,
        }
    }

    /// Notes after each change of the subscriptions up to which of them the mirror is
    /// complete: it has all that was held when a watch began once the watch of etcd has
    /// reached a revision that was read after that.
    async fn note_complete(
        &self,
        mirror: &Mirror,
        mut reached: watch::Receiver<Option<Revision>>,
    ) -> Result<Infallible, Failure> {
        let mut subscriptions_changed = mirror.subscriptions_changed();
        // The senders live as long as this.
        let _ = reached.wait_for(Option::is_some).await;
        loop {
            let newest = mirror.newest_subscription();
            let now = self.revision().await?;
            // Other keys than those that are watched may have been written last.
            let has_reached = reached.wait_for(|reached| *reached >= Some(now));
            let _ = timeout(EVENTS_WITHIN, has_reached).await;
            mirror.complete_up_to(newest);
            let _ = subscriptions_changed.changed().await;
        }
    }

    fn step_until(&self) -> Instant {
        Instant::now() + self.step
    }

    /// The revision at which etcd is now.
    async fn revision(&self) -> Result<Revision, Failure> {
        let get = TxnOp::get(self.etcd.keys.session("access"), None);
        let (revision, _) = self.etcd.connection.read(vec![get], self.step_until()).await?;
        Ok(revision)
    }

    /// Fills the mirror, and applies each change after that. Sends to `reached` up to which
    /// revision.
    async fn follow(
        &self,
        link: &Link,
        mirror: &Mirror,
        reached: &watch::Sender<Option<Revision>>,
    ) -> Result<Infallible, Failure> {
        let mut copy = StoreCopy::default();
        let listed = self.fill(&mut copy).await?;
        copy.report_changes(mirror);
        let mut events = self.watch_after(link, listed).await?;
        loop {
            let answer = events.message().await?;
            let ended = || Failure::NotSent("etcd ended the watch of the store".into());
            let answer = answer.ok_or_else(ended)?;
            if answer.canceled() {
                return Err(cancelled(&answer));
            }
            if answer.created() {
                reached.send_replace(Some(listed));
            }
            for event in answer.events() {
                match (event.event_type(), event.kv()) {
                    (EventType::Put, Some(pair)) => copy.put(&self.etcd.keys, pair),
                    (EventType::Delete, Some(pair)) => copy.delete(&self.etcd.keys, pair),
                    (_, None) => {}
                }
            }
            // Until the last fragment, a write may be known only in part.
            if !answer.0.fragment {
                copy.report_changes(mirror);
                let last = answer.events().last().and_then(Event::kv);
                if let Some(last) = last {
                    reached.send_replace(Some(Revision::from_etcd(last.mod_revision())));
                }
            }
        }
    }

    /// Reads all grants at one revision, which is returned.
    async fn fill(&self, copy: &mut StoreCopy) -> Result<Revision, Failure> {
        let range = self.etcd.keys.named("");
        let end = range_end(&range);
        let mut walk = Walk::new(&self.etcd.keys, range.into_bytes(), end, 0);
        let mut revision = Revision::default();
        while let Some((from, to)) = walk.range() {
            let until = self.step_until();
            let found = self.read_range(from, to, revision, PAGE_KEYS, until).await?;
            if revision == Revision::default() {
                revision = found.revision;
            }
            let pairs = found.get.kvs();
            for pair in pairs {
                copy.put(&self.etcd.keys, pair);
            }
            walk.advance(pairs, found.get.more());
        }
        Ok(revision)
    }

    /// Watches all resources' keys from the revision after this one.
    async fn watch_after(&self, link: &Link, listed: Revision) -> Result<WatchStream, Failure> {
        let range = self.etcd.keys.named("");
        let options = WatchOptions::new()
            .with_range(range_end(&range))
            .with_start_revision(listed.to_etcd().saturating_add(1))
            .with_fragment();
        let client = link.client().watch_client();
        let mut client = client.max_decoding_message_size(ANSWER_BYTES_MAX);
        let opened =
            timeout(self.etcd.connection.silence_max(), client.watch(range, Some(options)));
        let slow = |_| Failure::NotSent("etcd did not open a watch in time".into());
        Ok(opened.await.map_err(slow)??)
    }
}

fn cancelled(answer: &WatchResponse) -> Failure {
    let why = match answer.compact_revision() {
        0 => answer.cancel_reason(),
        _ => "its revisions were compacted",
    };
    Failure::NotSent(format!("etcd ended the watch of the store: {why}").into())
}
