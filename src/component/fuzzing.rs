//! The messages of the component protocol: each parser by itself, then the service over
//! the memory store.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a broken property panics")]

use std::{fmt::Debug, sync::Arc};

use futures_util::FutureExt as _;
use leasehold_lock::Violation;
use leasehold_memory as memory;
use leasehold_net::wire::Arrival;
use leasehold_proto::{
    components::{self as pb, lock_store_server::LockStoreServer},
    locks::{self, inspection_server::InspectionServer},
};
use leasehold_testing::Input;
use leasehold_testing::{Outcome, World, frame};
use prost::Message;
use tokio::time::Instant;
use tonic::metadata::MetadataMap;
use tower::ServiceExt as _;

use crate::{Instances, Metadata, service::Service, wire};

const LOCK_STORE: &str = "dapr.proto.components.v1.LockStore";
const INSPECTION: &str = "leasehold.v1.Inspection";

const METHODS: [(&str, &str); 11] = [
    (LOCK_STORE, "TryLock"),
    (LOCK_STORE, "Lock"),
    (LOCK_STORE, "RenewLock"),
    (LOCK_STORE, "Unlock"),
    (LOCK_STORE, "Init"),
    (LOCK_STORE, "Features"),
    (INSPECTION, "GetLock"),
    (INSPECTION, "ListLocks"),
    (INSPECTION, "ListWaiters"),
    (INSPECTION, "WatchLocks"),
    (INSPECTION, "EndLocks"),
];

/// The first byte selects the method. Then come a line with the `grpc-timeout`, a line
/// with the instance's name, and the message.
pub fn component_protocol(data: &[u8]) {
    let mut input = Input::new(data);
    let (service, method) = METHODS[usize::from(input.byte()) % METHODS.len()];
    let mut metadata = MetadataMap::new();
    for name in ["grpc-timeout", wire::INSTANCE] {
        if let Ok(value) = input.text().parse() {
            metadata.insert(name, value);
        }
    }
    headers(&metadata);
    let message = input.rest();
    let is_message = match method {
        "TryLock" | "Lock" => {
            let now = Instant::now();
            parts::<pb::LockRequest, _>(message, |request| wire::acquire(request, now, None))
        }
        "RenewLock" => parts::<pb::RenewLockRequest, _>(message, wire::renew),
        "Unlock" => parts::<pb::UnlockRequest, _>(message, wire::unlock),
        "Init" => parts::<pb::LockStoreInitRequest, _>(message, unread),
        "GetLock" => parts::<locks::GetLockRequest, _>(message, unread),
        "ListLocks" => parts::<locks::ListLocksRequest, _>(message, unread),
        "ListWaiters" => parts::<locks::ListWaitersRequest, _>(message, unread),
        "WatchLocks" => parts::<locks::WatchLocksRequest, _>(message, unread),
        "EndLocks" => parts::<locks::EndLocksRequest, _>(message, unread),
        _ => parts::<pb::FeaturesRequest, _>(message, unread),
    };
    if is_message {
        let outcome = || call(service, method, &metadata, message);
        assert_eq!(outcome(), outcome(), "the same call got two answers");
    }
}

/// For messages without a parser of their own: only the service reads them.
fn unread<M>(_: &M) -> Result<(), Violation> {
    Ok(())
}

fn headers(metadata: &MetadataMap) {
    let arrival = Arrival::now(metadata.as_ref());
    assert!(arrival.deadline.is_none_or(|due| due >= arrival.at));
    match wire::instance(metadata) {
        Ok(name) => assert!(name.len() <= 256),
        Err(violation) => assert_eq!(violation.field, wire::INSTANCE),
    }
}

/// Whether the bytes are a message. If so, checks that encoding and decoding it changes
/// nothing, and that `read` gives the same result each time.
fn parts<M, T: Debug>(message: &[u8], read: impl Fn(&M) -> Result<T, Violation>) -> bool
where
    M: Message + Default + PartialEq + Debug,
{
    let Ok(decoded) = M::decode(message) else { return false };
    assert_eq!(M::decode(&*decoded.encode_to_vec()).as_ref(), Ok(&decoded));
    match (read(&decoded), read(&decoded)) {
        (Ok(once), Ok(again)) => assert_eq!(format!("{once:?}"), format!("{again:?}")),
        (Err(once), Err(again)) => {
            const FIELDS: [&str; 6] =
                ["resource_id", "lock_id", "request_id", "holder", "ttl", "mode"];
            assert!(FIELDS.contains(&once.field.as_str()), "{once:?}");
            assert_eq!(once, again);
        }
        (once, again) => panic!("{once:?}, then {again:?}"),
    }
    true
}

fn call(service: &str, method: &str, metadata: &MetadataMap, message: &[u8]) -> Outcome {
    let world = World::new(leasehold_memory::KIND, "held");
    let store = world.store.clone();
    let open = move |_: &str, items: Metadata, _| {
        let store = store.clone();
        async move { memory::KIND.check(items).map(|_| store) }.boxed()
    };
    let instances = Arc::new(Instances::new(Arc::new(open), memory::KIND.features));
    let component = Service::new(Arc::clone(&instances));
    let body = tonic::body::Body::new(http_body_util::Full::new(frame(message)));
    let mut request = http::Request::post(format!("/{service}/{method}")).body(body).unwrap();
    *request.headers_mut() = metadata.clone().into_headers();
    world.run(async {
        instances.init("", Metadata::new()).await.unwrap();
        let answer = match service {
            INSPECTION => InspectionServer::new(component).oneshot(request).await,
            _ => LockStoreServer::new(component).oneshot(request).await,
        };
        Outcome::read(answer.unwrap(), false).await
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_seed_breaks_a_property() {
        leasehold_testing::no_seed_breaks("component_protocol", super::component_protocol);
    }
}
