//! UNLOCK by force: ends all grants of a resource, of which there may be thousands.
//!
//! They are read page by page. Each is deleted by a write of its own, and the writes of a
//! page travel together, so no transaction is larger than any other batch.

use std::{collections::HashMap, sync::Arc};

use etcd_client::KeyValue;
use futures_util::future::join_all;
use leasehold_lock::{BackendError, LockId, Release, ResourceId, Target};
use tokio::time::Instant;

use crate::{
    client::failure::Failure,
    grants::find::Held,
    keys::{GrantKeys, GrantName, SharedKeys},
    revision::Revision,
    verbs::release::{Deletion, Releases},
};

/// Grants that a pass over a resource has tried to end, and did not end as far as is known: the
/// name of each, and the revision at which its record was written.
type Left = HashMap<(LockId, Revision), (GrantName, Revision)>;

/// How far a release by force has come.
#[derive(Default)]
struct Progress {
    /// Whether an earlier call may have ended something.
    is_repeated: bool,
    /// Whether this call has ended a grant.
    ended: bool,
    /// Why it is not known whether a grant was ended.
    lost: Option<Arc<str>>,
    /// Whether the last pass found a grant that was not to be ended.
    spared: bool,
}

impl Progress {
    /// Whether this call may have ended a grant.
    fn has_happened(&self) -> bool {
        self.ended || self.lost.is_some()
    }

    /// The newest token of the grants that may be ended, of which a page was read at
    /// `revision`. Until anything may have been ended, a grant that takes the place of one that
    /// was read is ended too: otherwise nobody might have been ended although somebody held the
    /// resource throughout.
    fn newest(&self, target: &Target, revision: Revision) -> Revision {
        match Revision::fixed(target) {
            Some(newest) if self.is_repeated || self.has_happened() => newest,
            _ => {
                revision.fix(target);
                revision
            }
        }
    }

    /// The error of a release that has to stop here.
    fn error(&self, why: Arc<str>) -> BackendError {
        match self.has_happened() {
            true => BackendError::Unknown(why),
            false => BackendError::Unavailable(why),
        }
    }
}

impl Releases {
    /// Ends all grants that the resource had when this was called first.
    pub(super) async fn release_all(
        &self,
        release: &Release,
        until: Instant,
    ) -> Result<(), BackendError> {
        let is_repeated = release.target.fixed().is_some();
        let mut progress = Progress { is_repeated, ..Progress::default() };
        let mut left = Some(Left::new());
        while let Some(before) = left {
            left = self.end_all(release, before, &mut progress, until).await?;
            if left.is_some() && Instant::now() >= until {
                let why = progress.lost.clone();
                let why = why.unwrap_or_else(|| "not all grants could be ended in time".into());
                return Err(progress.error(why));
            }
        }
        match progress.has_happened() {
            true => Ok(()),
            false => Err(BackendError::NotHeld { held: progress.spared }),
        }
    }

    /// Reads all grants once, and ends those that are to be ended. Returns those that may not
    /// have been; `None` if there are none.
    async fn end_all(
        &self,
        release: &Release,
        mut before: Left,
        progress: &mut Progress,
        until: Instant,
    ) -> Result<Option<Left>, BackendError> {
        let resource = &release.resource;
        let (mut left, mut is_left) = (Left::new(), false);
        let mut from = self.etcd.keys.holder(resource).into_bytes();
        progress.spared = false;
        loop {
            let page = match Box::pin(self.etcd.page(resource, from, until)).await {
                Ok(page) => page,
                Err(failure) => {
                    return Err(progress.error(Arc::clone(failure.why())));
                }
            };
            let newest = progress.newest(&release.target, page.revision);
            let pairs = page.get.kvs();
            let (ended, spared): (Vec<_>, Vec<_>) = pairs
                .iter()
                .filter_map(|pair| self.deletion(resource, pair, until))
                .partition(|deletion| deletion.token <= newest);
            progress.spared |= !spared.is_empty();
            // Why a delete was certainly not carried out. Others of the page may have been.
            let mut refused = None;
            let commits =
                ended.iter().map(|deletion| self.etcd.committer.commit(deletion.op.clone()));
            for (deletion, committed) in ended.iter().zip(join_all(commits).await) {
                let name = deletion.name.clone();
                let grant = name.map(|name| {
                    ((name.lock_id.clone(), deletion.token), (name, deletion.written))
                });
                if let Some((grant, _)) = &grant {
                    before.remove(grant);
                }
                match committed {
                    Ok(reply) if reply.succeeded => {
                        self.deleted(resource, deletion);
                        progress.ended = true;
                        continue;
                    }
                    // The key was written or deleted meanwhile, which the next pass shows.
                    Ok(_) => {}
                    Err(Failure::Unknown(why) | Failure::OutOfSpace(why)) => {
                        progress.lost = Some(why);
                    }
                    Err(failure) => refused = Some(Arc::clone(failure.why())),
                }
                is_left = true;
                left.extend(grant);
            }
            if let Some(why) = refused {
                return Err(progress.error(why));
            }
            match page.next() {
                Some(next) => from = next,
                None => break,
            }
        }
        // The others are not there any more.
        for ((_, token), (name, written)) in before {
            self.grants.forget(resource, &name, (token, written));
        }
        Ok(is_left.then_some(left))
    }

    /// The delete of a grant as it was read, also if its record is not ours. `None` if its
    /// name is not even text.
    fn deletion(
        &self,
        resource: &ResourceId,
        pair: &KeyValue,
        until: Instant,
    ) -> Option<Deletion> {
        if let Some(held) = Held::of(&self.etcd.keys, resource, pair) {
            return Some(Deletion::of_read(&held.keys, Some(held.name), pair, until));
        }
        let (holder, key) = (self.etcd.keys.holder(resource), pair.key_str().ok()?);
        let record = key.to_owned();
        let shared = (key != holder).then_some(SharedKeys { record, request: None });
        Some(Deletion::of_read(&GrantKeys { holder, shared }, None, pair, until))
    }
}
