//! Finds grants in etcd. All reads are linearizable.

use etcd_client::{GetOptions, KeyValue};
use leasehold_lock::{AttemptId, GrantId, LockId, Mode, ResourceId};
use tokio::time::Instant;

use crate::{
    client::{failure::Failure, reads},
    commit::op::Op,
    etcd::Etcd,
    keys::{GrantKeys, GrantName, Keys, range_end},
    record::Record,
    revision::Revision,
};

/// How many grants are read at a time: as many as can be ended by one batch, unless
/// `maxTxnOps` was changed.
const PAGE_KEYS: usize = 126;

/// A grant's key, as it was read.
#[derive(Clone, Debug)]
pub(crate) struct Held<'a> {
    pub(crate) resource: &'a ResourceId,
    pub(crate) name: GrantName,
    pub(crate) keys: GrantKeys,
    pub(crate) pair: KeyValue,
    pub(crate) record: Record,
    pub(crate) token: Revision,
}

impl<'a> Held<'a> {
    /// The grant that a pair is the record of, if it is one.
    pub(crate) fn of(keys: &Keys, resource: &'a ResourceId, pair: &KeyValue) -> Option<Self> {
        let record = Record::decode(pair.value())?;
        let name = record.name()?;
        let keys = keys.grant(resource, &name);
        let token = Revision::from_etcd(pair.create_revision());
        let is_its = pair.key() == keys.record().as_bytes();
        is_its.then(|| Self { resource, name, keys, pair: pair.clone(), record, token })
    }

    /// The lease that the key lies under; 0 for none.
    pub(crate) fn lease(&self) -> i64 {
        self.pair.lease()
    }

    /// A write of the grant's keys that takes place only if its record is unchanged since it
    /// was read.
    pub(crate) fn when_unchanged(&self, until: Instant) -> Op {
        Op::of_grant(&self.keys, until).when_unchanged(self.keys.record(), &self.pair)
    }
}

/// The criterion of a search for a grant.
#[derive(Clone, Copy, Debug)]
pub(crate) enum By<'a> {
    LockId(&'a LockId),
    /// Its lock ID and its token.
    Token(&'a LockId, Revision),
    /// Its lock ID, and the attempt that was the last to get it.
    Claim(&'a LockId, AttemptId),
    /// Its public ID.
    Id(GrantId),
    /// The attempt that made it, if no replay has claimed it since, and its name.
    Attempt(AttemptId, &'a GrantName),
}

impl By<'_> {
    fn is(self, held: &Held<'_>) -> bool {
        match self {
            Self::LockId(lock_id) => held.name.lock_id == *lock_id,
            Self::Token(lock_id, token) => held.name.lock_id == *lock_id && held.token == token,
            Self::Claim(lock_id, attempt) => {
                held.name.lock_id == *lock_id && held.record.last_got_by(attempt)
            }
            Self::Id(id) => held.record.id() == Some(id),
            Self::Attempt(attempt, _) => held.record.made_by(attempt),
        }
    }
}

/// The result of a search for a grant.
pub(crate) struct Found<'a> {
    /// The grant.
    pub(crate) grant: Option<Held<'a>>,
    /// Whether the resource is held.
    pub(crate) is_held: bool,
}

impl Etcd {
    /// Finds a grant. `known` is its mode as far as this process knows it. The exclusive grant
    /// costs one read, and so does a shared one that is known. By its public ID, all are read,
    /// page by page.
    pub(crate) async fn find<'a>(
        &self,
        resource: &'a ResourceId,
        by: By<'_>,
        known: Option<Mode>,
        until: Instant,
    ) -> Result<Found<'a>, Failure> {
        let lock_id = match by {
            By::LockId(lock_id) | By::Token(lock_id, _) | By::Claim(lock_id, _) => lock_id,
            By::Id(id) => return Box::pin(self.find_by_id(resource, id, until)).await,
            By::Attempt(_, name) => {
                let grant = self.named(resource, name, by, until).await?;
                return Ok(Found { is_held: grant.is_some(), grant });
            }
        };
        let shared = GrantName { mode: Mode::Shared, lock_id: lock_id.clone(), request: None };
        if known == Some(Mode::Shared)
            && let Some(held) = self.named(resource, &shared, by, until).await?
        {
            return Ok(Found { grant: Some(held), is_held: true });
        }
        let holder = self.keys.holder(resource);
        let first = self.grants(resource, holder.clone().into_bytes(), 1, until).await?;
        let first = first.get.kvs().first();
        let found = first.and_then(|pair| Held::of(&self.keys, resource, pair));
        let found = found.filter(|held| by.is(held));
        // Beside an exclusive grant there is no shared one.
        let is_shared = first.is_some_and(|pair| pair.key() != holder.as_bytes());
        let grant = match found {
            None if is_shared => Box::pin(self.named(resource, &shared, by, until)).await?,
            found => found,
        };
        Ok(Found { grant, is_held: first.is_some() })
    }

    async fn find_by_id<'a>(
        &self,
        resource: &'a ResourceId,
        id: GrantId,
        until: Instant,
    ) -> Result<Found<'a>, Failure> {
        let mut from = self.keys.holder(resource).into_bytes();
        let mut is_held = false;
        loop {
            let page = self.page(resource, from, until).await?;
            let pairs = page.get.kvs();
            is_held |= !pairs.is_empty();
            let mut helds =
                pairs.iter().filter_map(|pair| Held::of(&self.keys, resource, pair));
            let grant = helds.find(|held| By::Id(id).is(held));
            match page.next() {
                Some(next) if grant.is_none() => from = next,
                _ => return Ok(Found { grant, is_held }),
            }
        }
    }

    /// Reads some grants of a resource, from this key on.
    pub(crate) async fn page(
        &self,
        resource: &ResourceId,
        from: Vec<u8>,
        until: Instant,
    ) -> Result<reads::Found, Failure> {
        self.grants(resource, from, PAGE_KEYS, until).await
    }

    async fn grants(
        &self,
        resource: &ResourceId,
        from: Vec<u8>,
        keys_max: usize,
        until: Instant,
    ) -> Result<reads::Found, Failure> {
        let options = GetOptions::new().with_range(range_end(&self.keys.holder(resource)));
        self.reads.range(from, options, keys_max, until).await
    }

    async fn named<'a>(
        &self,
        resource: &'a ResourceId,
        name: &GrantName,
        by: By<'_>,
        until: Instant,
    ) -> Result<Option<Held<'a>>, Failure> {
        let key = self.keys.grant(resource, name).record().to_owned();
        let pair = self.reads.key(key, until).await?;
        let held = pair.and_then(|pair| Held::of(&self.keys, resource, &pair));
        Ok(held.filter(|held| by.is(held)))
    }
}
