//! Invalid fields: each is refused with INVALID_REQUEST and its name, without any effect.

use leasehold_proto::components::{LockMode, LockRequest, RenewLockRequest, UnlockRequest};
use prost_types::Duration;

use crate::{
    answer::Answer,
    case::{Cases, Demand},
    expect::Expect as _,
    feature::Feature,
    grant::Ask,
    reason::Reason,
    store::Store,
    world::{World, hold, must_be_held, secs},
};

/// The length limits of a resource ID and of any other name.
pub(crate) const RESOURCE_ID_BYTES_MAX: usize = 1024;
pub(crate) const NAME_BYTES_MAX: usize = 256;

/// A bad value for a field, and the calls that have the field.
struct Bad {
    what: &'static str,
    field: &'static str,
    calls: &'static [Call],
    spoil: fn(&mut Fields),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    TryLock,
    Lock,
    RenewLock,
    Unlock,
}

/// The fields of all requests; all are valid until one is spoilt.
struct Fields {
    resource_id: String,
    ttl: Duration,
    lock_id: String,
    request_id: String,
    mode: i32,
    holder: String,
}

const ALL: &[Call] = &[Call::TryLock, Call::Lock, Call::RenewLock, Call::Unlock];
const ACQUIRING: &[Call] = &[Call::TryLock, Call::Lock];
const WITH_TTL: &[Call] = &[Call::TryLock, Call::Lock, Call::RenewLock];
const BY_LOCK_ID: &[Call] = &[Call::RenewLock, Call::Unlock];

const BAD: &[Bad] = &[
    Bad {
        what: "an empty resource_id",
        field: "resource_id",
        calls: ALL,
        spoil: |fields| fields.resource_id.clear(),
    },
    Bad {
        what: "a resource_id of 1,025 bytes",
        field: "resource_id",
        calls: ALL,
        spoil: |fields| fields.resource_id = "r".repeat(RESOURCE_ID_BYTES_MAX + 1),
    },
    Bad {
        what: "a resource_id of 513 two-byte letters",
        field: "resource_id",
        calls: ALL,
        spoil: |fields| fields.resource_id = "é".repeat(RESOURCE_ID_BYTES_MAX / 2 + 1),
    },
    Bad {
        what: "a line break in the resource_id",
        field: "resource_id",
        calls: ALL,
        spoil: |fields| fields.resource_id.push('\n'),
    },
    Bad {
        what: "a zero byte in the resource_id",
        field: "resource_id",
        calls: ALL,
        spoil: |fields| fields.resource_id.push('\0'),
    },
    Bad {
        what: "a byte 0x01 in the resource_id",
        field: "resource_id",
        calls: ALL,
        spoil: |fields| fields.resource_id.insert(0, '\u{1}'),
    },
    Bad {
        what: "a delete character in the resource_id",
        field: "resource_id",
        calls: ALL,
        spoil: |fields| fields.resource_id.push('\u{7f}'),
    },
    Bad {
        what: "a control character beyond ASCII in the resource_id",
        field: "resource_id",
        calls: ALL,
        spoil: |fields| fields.resource_id.push('\u{85}'),
    },
    Bad {
        what: "a lock_id of 257 bytes",
        field: "lock_id",
        calls: ALL,
        spoil: |fields| fields.lock_id = "l".repeat(NAME_BYTES_MAX + 1),
    },
    Bad {
        what: "an empty lock_id",
        field: "lock_id",
        calls: BY_LOCK_ID,
        spoil: |fields| fields.lock_id.clear(),
    },
    Bad {
        what: "a request_id of 257 bytes",
        field: "request_id",
        calls: ACQUIRING,
        spoil: |fields| fields.request_id = "q".repeat(NAME_BYTES_MAX + 1),
    },
    Bad {
        what: "a holder of 257 bytes",
        field: "holder",
        calls: ACQUIRING,
        spoil: |fields| fields.holder = "h".repeat(NAME_BYTES_MAX + 1),
    },
    Bad {
        what: "an unknown mode",
        field: "mode",
        calls: ACQUIRING,
        spoil: |fields| fields.mode = 7,
    },
    Bad {
        what: "a ttl just above 24 h",
        field: "ttl",
        calls: WITH_TTL,
        spoil: |fields| fields.ttl = Duration { seconds: 86_400, nanos: 1 },
    },
    Bad {
        what: "the greatest ttl there is",
        field: "ttl",
        calls: WITH_TTL,
        spoil: |fields| fields.ttl = Duration { seconds: i64::MAX, nanos: 999_999_999 },
    },
    Bad {
        what: "a ttl with two billion nanos",
        field: "ttl",
        calls: WITH_TTL,
        spoil: |fields| fields.ttl = Duration { seconds: 2, nanos: 2_000_000_000 },
    },
    Bad {
        what: "a ttl whose nanos have the other sign",
        field: "ttl",
        calls: WITH_TTL,
        spoil: |fields| fields.ttl = Duration { seconds: 2, nanos: -5 },
    },
];

pub(crate) fn tests(cases: &mut Cases) {
    for bad in BAD {
        for &call in bad.calls {
            let sentence = format!(
                "{} with {} is INVALID_REQUEST for {}",
                call.name(),
                bad.what,
                bad.field
            );
            cases.core(sentence, move |world| refused(world, bad, call));
        }
    }
    cases.core("a refused TryLock takes nothing", |world| takes_nothing(world, Call::TryLock));
    cases.core("a refused Lock takes nothing", |world| takes_nothing(world, Call::Lock));
    cases.core("a refused RenewLock leaves the TTL as it was", renewal_changes_nothing);
    cases.core("a refused Lock on a held resource does not wait", does_not_wait);
    cases.add(
        Demand::Without(Feature::Shared),
        "LOCK_MODE_SHARED is UNSUPPORTED where it is not declared",
        shared,
    );
}

impl Call {
    fn name(self) -> &'static str {
        match self {
            Self::TryLock => "TryLock",
            Self::Lock => "Lock",
            Self::RenewLock => "RenewLock",
            Self::Unlock => "Unlock",
        }
    }

    async fn send(self, store: &Store, fields: Fields) -> Answer<()> {
        let Fields { resource_id, ttl, lock_id, request_id, mode, holder } = fields;
        let mut ask = Ask::of("").within(secs(5));
        let ttl = Some(ttl);
        match self {
            Self::TryLock | Self::Lock => {
                let metadata = Default::default();
                ask.request = LockRequest {
                    resource_id,
                    ttl,
                    metadata,
                    lock_id,
                    request_id,
                    mode,
                    holder,
                };
                let is_try = self == Self::TryLock;
                let answer =
                    if is_try { store.try_lock(&ask).await } else { store.lock(&ask).await };
                answer.map(drop)
            }
            Self::RenewLock => {
                let metadata = Default::default();
                let request = RenewLockRequest { resource_id, lock_id, ttl, metadata };
                store.renew_raw(request).await.map(drop)
            }
            Self::Unlock => {
                let (force, metadata) = (false, Default::default());
                let request = UnlockRequest { resource_id, lock_id, force, metadata };
                store.unlock_raw(request).await
            }
        }
    }
}

impl Fields {
    fn good(resource: &str) -> Self {
        Self {
            resource_id: resource.to_owned(),
            ttl: Duration { seconds: 60, nanos: 0 },
            lock_id: World::secret(),
            request_id: World::secret(),
            mode: LockMode::Exclusive.into(),
            holder: "conformance".to_owned(),
        }
    }
}

async fn refused(world: World, bad: &'static Bad, call: Call) -> anyhow::Result<()> {
    let mut fields = Fields::good(&world.resource());
    (bad.spoil)(&mut fields);
    let refusal = call.send(&world.store(), fields).await.refused(Reason::InvalidRequest)?;
    refusal.names(&[bad.field])
}

async fn takes_nothing(world: World, call: Call) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    for bad in BAD.iter().filter(|bad| bad.field != "resource_id" && bad.calls.contains(&call))
    {
        let mut fields = Fields::good(&resource);
        (bad.spoil)(&mut fields);
        let _ = call.send(&store, fields).await;
        let tried = store.try_lock(&Ask::of(&resource)).await;
        let grant = tried.or_fail(&format!("a TryLock after a call with {}", bad.what))?;
        store.release(&grant).await.or_fail("Unlock")?;
    }
    Ok(())
}

async fn renewal_changes_nothing(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = hold(&store, &Ask::of(&resource).ttl(secs(60))).await?;
    let mut fields = Fields::good(&resource);
    fields.lock_id.clone_from(&grant.lock_id);
    fields.ttl = Duration { seconds: 86_401, nanos: 0 };
    Call::RenewLock.send(&store, fields).await.refused(Reason::InvalidRequest)?;
    must_be_held(&store, &resource, "after a refused renewal").await?;
    store.release(&grant).await.or_fail("Unlock after a refused renewal")
}

async fn does_not_wait(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    hold(&store, &Ask::of(&resource)).await?;
    let mut fields = Fields::good(&resource);
    fields.ttl = Duration { seconds: 86_401, nanos: 0 };
    Call::Lock.send(&store, fields).await.refused(Reason::InvalidRequest).map(drop)
}

async fn shared(world: World) -> anyhow::Result<()> {
    let ask = Ask::of(&world.resource()).mode(LockMode::Shared);
    world.store().try_lock(&ask).await.refused(Reason::Unsupported).map(drop)
}
