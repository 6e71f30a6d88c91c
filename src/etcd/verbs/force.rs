//! UNLOCK by force: ends all grants of a resource, of which there may be thousands.
//!
//! They are read page by page. Each is deleted by a write of its own, and the writes of a
//! page travel together, so no transaction is larger than any other batch.

use std::{collections::HashMap, sync::Arc};

use etcd_client::KeyValue;
use futures_util::future::join_all;
use leasehold_lock::{BackendError, LockId, Release, ResourceId};
use tokio::time::Instant;

use crate::{
    commit::op::OpError,
    grants::find::Held,
    keys::{GrantKeys, GrantName, SharedKeys, key_after},
    revision::Revision,
    verbs::release::{Deletion, Releases, unread},
};

/// How far a release by force has come.
struct Progress {
    /// Whether an earlier call may have ended something.
    is_repeated: bool,
    /// Whether this call has ended a grant.
    ended: bool,
    /// Why it is not known whether a grant was ended.
    lost: Option<Arc<str>>,
    /// The grants that the last pass did not end, as far as is known.
    tried: HashMap<(LockId, Revision), GrantName>,
}

impl Progress {
    /// Whether only grants may be ended that were made before the first call. Until anything
    /// may have been ended, a grant that takes the place of one that was read is ended too:
    /// otherwise nobody might have been ended although somebody held the resource throughout.
    fn is_bound(&self) -> bool {
        self.is_repeated || self.ended || self.lost.is_some()
    }

    /// The error of a release that has to stop here.
    fn error(&self, why: Arc<str>) -> BackendError {
        match self.is_bound() {
            true => BackendError::Unknown(why),
            false => BackendError::Unavailable(why),
        }
    }
}

/// What a pass over the grants of a resource came to.
#[derive(Default)]
struct Pass {
    /// Whether it found a grant to end.
    found: bool,
    /// Whether it found a grant that was not to be ended.
    spared: bool,
    /// Whether a grant may not have been ended.
    left: bool,
}

impl Releases {
    /// Ends all grants that the resource had when this was called first.
    pub(super) async fn release_all(
        &self,
        release: &Release,
        until: Instant,
    ) -> Result<(), BackendError> {
        let is_repeated = release.aim.bound().is_some();
        let tried = HashMap::new();
        let mut progress = Progress { is_repeated, ended: false, lost: None, tried };
        loop {
            let pass = self.end_all(release, &mut progress, until).await?;
            let has_happened = progress.ended || progress.lost.is_some();
            if !pass.found && !has_happened {
                return Err(BackendError::NotHeld { held: pass.spared });
            }
            if !pass.left && has_happened {
                return Ok(());
            }
            if Instant::now() >= until {
                let why = progress.lost.clone();
                let why = why.unwrap_or_else(|| "not all grants could be ended in time".into());
                return Err(progress.error(why));
            }
        }
    }

    /// Reads all grants once, and ends those that are to be ended.
    async fn end_all(
        &self,
        release: &Release,
        progress: &mut Progress,
        until: Instant,
    ) -> Result<Pass, BackendError> {
        let resource = &release.resource;
        let mut pass = Pass::default();
        let mut tried = std::mem::take(&mut progress.tried);
        let mut from = self.finder.keys.holder(resource).into_bytes();
        loop {
            let page = match Box::pin(self.finder.page(resource, from, until)).await {
                Ok(page) => page,
                Err(failure) => {
                    let may_have_happened = progress.is_repeated || progress.ended;
                    return Err(unread(failure, may_have_happened, progress.lost.as_ref()));
                }
            };
            let bound = release.aim.bound_or(page.revision.0);
            let is_bound = progress.is_bound();
            let (ended, spared): (Vec<_>, Vec<_>) = page
                .get
                .kvs()
                .iter()
                .filter_map(|pair| self.deletion(resource, pair, until))
                .partition(|deletion| !is_bound || deletion.token.0 <= bound);
            pass.found |= !ended.is_empty();
            pass.spared |= !spared.is_empty();
            // Why a delete was certainly not carried out. Others of the page may have been.
            let mut refused = None;
            let commits =
                ended.iter().map(|deletion| self.committer.commit(deletion.op.clone()));
            for (deletion, committed) in ended.iter().zip(join_all(commits).await) {
                let name = deletion.name.clone();
                let tried_again =
                    name.map(|name| ((name.lock_id.clone(), deletion.token), name));
                if let Some((grant, _)) = &tried_again {
                    tried.remove(grant);
                }
                match committed {
                    Ok(reply) if reply.succeeded => {
                        self.deleted(resource, deletion);
                        progress.ended = true;
                    }
                    // The key was written or deleted meanwhile, which the next pass shows.
                    Ok(_) => {
                        pass.left = true;
                        progress.tried.extend(tried_again);
                    }
                    Err(OpError::Unknown(why) | OpError::OutOfSpace(why)) => {
                        pass.left = true;
                        progress.lost = Some(why);
                        progress.tried.extend(tried_again);
                    }
                    Err(error) => refused = Some(error.why()),
                }
            }
            if let Some(why) = refused {
                return Err(progress.error(why));
            }
            match page.get.kvs().last() {
                Some(last) if page.get.more() => from = key_after(last.key()),
                _ => break,
            }
        }
        for ((_, token), name) in tried {
            self.grants.forget(resource, &name, token);
        }
        Ok(pass)
    }

    /// The delete of a grant as it was read, also if its record is not ours. `None` if its
    /// name is not even text.
    fn deletion(
        &self,
        resource: &ResourceId,
        pair: &KeyValue,
        until: Instant,
    ) -> Option<Deletion> {
        if let Some(held) = Held::of(&self.finder.keys, resource, pair) {
            return Some(Deletion::of_read(&held.keys, Some(held.name), pair, until));
        }
        let (holder, key) = (self.finder.keys.holder(resource), pair.key_str().ok()?);
        let record = key.to_owned();
        let shared = (key != holder).then_some(SharedKeys { record, request: None });
        Some(Deletion::of_read(&GrantKeys { holder, shared }, None, pair, until))
    }
}
