//! Lists a resource's keys at one revision, page by page.

use etcd_client::{GetOptions, TxnOp, TxnOpResponse};
use tokio::time::Instant;

use super::super::{
    acquire::{as_etcd, revision},
    backend::Core,
    failure::Failure,
    keys::{Part, range_end},
    queue::{List, Queue},
};

/// Keys a page.
const PAGE_KEYS: i64 = 1_000;

/// Fills the queue's mirror. Waits until there is room among the lists under way.
pub(super) async fn fill(core: &Core, queue: &Queue) -> Result<(), Failure> {
    let _room = core.watches.lists.acquire().await;
    let until = Instant::now() + core.settings.operation_timeout;
    loop {
        let number = queue.lists();
        let list = read(core, queue, until).await?;
        if queue.listed(number, list) {
            return Ok(());
        }
    }
}

async fn read(core: &Core, queue: &Queue, until: Instant) -> Result<List, Failure> {
    let range = core.keys.resource(&queue.resource);
    let mut list = List::default();
    let mut from = range.as_bytes().to_vec();
    loop {
        let options = GetOptions::new()
            .with_range(range_end(&range))
            .with_keys_only()
            .with_limit(PAGE_KEYS)
            .with_revision(as_etcd(list.revision));
        let read = core.connection.read(vec![TxnOp::get(from, Some(options))], until).await?;
        if list.revision == 0 {
            list.revision =
                read.header().map(|header| revision(header.revision())).unwrap_or_default();
        }
        let responses = read.op_responses();
        let Some(TxnOpResponse::Get(page)) = responses.first() else {
            return Err(Failure::Unknown("etcd answered something else".into()));
        };
        for pair in page.kvs() {
            match core.keys.part(&queue.resource, pair.key()) {
                Part::Holder => list.holder = Some(revision(pair.mod_revision())),
                Part::Entry(entry) => {
                    list.entries.push((entry, revision(pair.create_revision())));
                }
                Part::Other => {}
            }
        }
        match page.kvs().last() {
            Some(last) if page.more() => {
                from = last.key().to_vec();
                from.push(0);
            }
            _ => return Ok(list),
        }
    }
}
