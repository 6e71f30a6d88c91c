//! Lists a resource's keys at one revision, page by page.

use etcd_client::GetOptions;
use tokio::time::{Instant, sleep};

use crate::backend::etcd::{
    client::{failure::Failure, reads::KEYS_MAX},
    core::Core,
    keys::{Part, range_end},
    queue::{
        follow::RETRY_DELAY,
        waiters::{List, Queue},
    },
    verbs::acquire::{as_etcd, revision},
};

/// Keys of the first page. It is short, so that many lists fit into one transaction:
/// after a reconnect every queue is listed.
const FIRST_PAGE_KEYS: usize = 16;

/// Fills the queue's mirror.
pub(crate) async fn fill(core: &Core, queue: &Queue) -> Result<(), Failure> {
    loop {
        let number = queue.lists();
        match read(core, queue).await {
            Ok(list) => {
                if queue.listed(number, list) {
                    return Ok(());
                }
            }
            // etcd is slow. The watch tells if the connection is lost.
            Err(failure) if failure.is_passing() && core.connection.is_answering() => {
                sleep(RETRY_DELAY).await;
            }
            Err(failure) => return Err(failure),
        }
    }
}

async fn read(core: &Core, queue: &Queue) -> Result<List, Failure> {
    let until = Instant::now() + core.settings.operation_timeout;
    let range = core.keys.resource(&queue.resource);
    let mut list = List::default();
    let (mut from, mut keys_max) = (range.as_bytes().to_vec(), FIRST_PAGE_KEYS);
    loop {
        let options = GetOptions::new()
            .with_range(range_end(&range))
            .with_keys_only()
            .with_revision(as_etcd(list.revision));
        let page = core.watches.lists.look_at_range(from, options, keys_max, until).await?;
        if list.revision == 0 {
            list.revision = page.revision;
        }
        for pair in page.get.kvs() {
            match core.keys.part(&queue.resource, pair.key()) {
                Part::Holder => list.holder = Some(revision(pair.mod_revision())),
                Part::Entry(entry) => {
                    list.entries.push((entry, revision(pair.create_revision())));
                }
                Part::Other => {}
            }
        }
        match page.get.kvs().last() {
            Some(last) if page.get.more() => {
                from = last.key().to_vec();
                from.push(0);
                keys_max = KEYS_MAX;
            }
            _ => return Ok(list),
        }
    }
}
