//! A grant as it was read from etcd, and how it is looked for.

use etcd_client::{GetOptions, KeyValue};
use leasehold_lock::{GrantId, LockId, Mode, ResourceId};
use tokio::time::Instant;

use crate::{
    client::failure::Failure,
    commit::op::Op,
    core::Core,
    keys::{GrantKeys, GrantName, Keys, key_after, range_end},
    lease::pool::Lease,
    record::Record,
    revision::Revision,
};

/// A grant's key, as it was read.
#[derive(Clone, Debug)]
pub(super) struct Held<'a> {
    pub(super) resource: &'a ResourceId,
    pub(super) name: GrantName,
    pub(super) keys: GrantKeys,
    pub(super) pair: KeyValue,
    pub(super) record: Record,
    pub(super) token: Revision,
}

impl<'a> Held<'a> {
    /// The grant that a pair is the record of, if it is one.
    pub(super) fn of(keys: &Keys, resource: &'a ResourceId, pair: &KeyValue) -> Option<Self> {
        let record = Record::decode(pair.value())?;
        let name = record.name()?;
        let keys = keys.grant(resource, &name);
        let token = Revision::from_etcd(pair.create_revision());
        let is_its = pair.key() == keys.record().as_bytes();
        is_its.then(|| Self { resource, name, keys, pair: pair.clone(), record, token })
    }

    /// The lease that the key lies under; 0 for none.
    pub(super) fn lease(&self) -> i64 {
        self.pair.lease()
    }

    /// A write of the grant's keys that takes place only if its record is unchanged since it
    /// was read. The record keeps its creation revision, which is the grant's token.
    pub(super) fn rewrite_op(&self, record: &Record, lease: &Lease, until: Instant) -> Op {
        Op::of_grant(&self.keys, until)
            .when_unchanged(self.keys.record(), &self.pair)
            .put_grant(&self.keys, record.encode(), lease)
    }
}

/// What a search for a grant found.
pub(super) struct Found<'a> {
    /// The grant.
    pub(super) grant: Option<Held<'a>>,
    /// Whether anybody holds the resource.
    pub(super) is_held: bool,
}

impl Core {
    /// Reads the grant of this lock ID, linearizably. `known` is what this process takes it
    /// for. The exclusive grant costs one read, and so does a shared one that is known.
    pub(super) async fn find<'a>(
        &self,
        resource: &'a ResourceId,
        lock_id: &LockId,
        known: Option<&GrantName>,
        until: Instant,
    ) -> Result<Found<'a>, Failure> {
        let grant = |pair: &KeyValue| {
            let held = Held::of(&self.keys, resource, pair);
            held.filter(|held| held.name.lock_id == *lock_id)
        };
        if known.is_some_and(|known| known.mode == Mode::Shared)
            && let Some(held) = self.find_shared(resource, lock_id, until).await?
        {
            return Ok(Found { grant: Some(held), is_held: true });
        }
        let holder = self.keys.holder(resource);
        let options = GetOptions::new().with_range(range_end(&holder));
        let first = self.reads.range(holder.clone().into_bytes(), options, 1, until).await?;
        let first = first.get.kvs().first();
        let found = first.and_then(grant);
        // Beside an exclusive grant there is no shared one.
        let is_shared = first.is_some_and(|pair| pair.key() != holder.as_bytes());
        let grant = match found {
            None if is_shared => Box::pin(self.find_shared(resource, lock_id, until)).await?,
            found => found,
        };
        Ok(Found { grant, is_held: first.is_some() })
    }

    /// Reads the grant of this public ID, linearizably. Many shared grants are read page by
    /// page, unless this one was lately shown.
    pub(super) async fn find_by_id<'a>(
        &self,
        resource: &'a ResourceId,
        id: GrantId,
        until: Instant,
    ) -> Result<Found<'a>, Failure> {
        let grant = |pair: &KeyValue| {
            let held = Held::of(&self.keys, resource, pair);
            held.filter(|held| held.record.id() == Some(id))
        };
        let lock = self.key_cache.get(id);
        let key = lock.and_then(|lock| self.keys.requested(resource, lock.as_bytes()));
        if let Some(key) = key
            && let Some(held) = self.reads.key(key, until).await?.as_ref().and_then(grant)
        {
            return Ok(Found { grant: Some(held), is_held: true });
        }
        let mut from = self.keys.holder(resource).into_bytes();
        let mut is_held = false;
        loop {
            let page = self.grants_from(resource, from, until).await?;
            let pairs = page.get.kvs();
            is_held |= !pairs.is_empty();
            let found = pairs.iter().find_map(grant);
            match pairs.last() {
                Some(last) if found.is_none() && page.get.more() => {
                    from = key_after(last.key());
                }
                _ => return Ok(Found { grant: found, is_held }),
            }
        }
    }

    async fn find_shared<'a>(
        &self,
        resource: &'a ResourceId,
        lock_id: &LockId,
        until: Instant,
    ) -> Result<Option<Held<'a>>, Failure> {
        let name = GrantName { mode: Mode::Shared, lock_id: lock_id.clone(), request: None };
        let key = self.keys.grant(resource, &name).record().to_owned();
        let pair = self.reads.key(key, until).await?;
        let held = pair.and_then(|pair| Held::of(&self.keys, resource, &pair));
        Ok(held.filter(|held| held.name.lock_id == *lock_id))
    }
}
