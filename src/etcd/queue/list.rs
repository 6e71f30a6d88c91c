//! Lists a resource's keys at one revision, page by page.

use etcd_client::GetOptions;
use tokio::time::{Instant, sleep};

use crate::{
    client::{failure::Failure, reads::KEYS_MAX},
    keys::{Part, range_end},
    queue::{
        queues::Queues,
        waiters::{List, Queue},
    },
    revision::Revision,
};

/// Keys of the first page. It is short, so that many lists fit into one transaction: after a
/// reconnect every queue is listed.
const FIRST_PAGE_KEYS: usize = 16;
const RETRY_DELAY: std::time::Duration = std::time::Duration::from_millis(200);

/// Fills the queue's mirror.
pub(super) async fn fill(queues: &Queues, queue: &Queue) -> Result<(), Failure> {
    loop {
        let number = queue.begin_list();
        match read(queues, queue).await {
            Ok(list) => {
                if queue.finish_list(number, list) {
                    return Ok(());
                }
            }
            // etcd is slow. If the connection is lost, the watch reports it.
            Err(failure) if failure.is_passing() && queues.etcd.connection.is_answering() => {
                sleep(RETRY_DELAY).await;
            }
            Err(failure) => return Err(failure),
        }
    }
}

async fn read(queues: &Queues, queue: &Queue) -> Result<List, Failure> {
    let until = Instant::now() + queues.settings.operation_timeout;
    let range = queues.etcd.keys.resource(&queue.resource);
    let mut list = List::default();
    let (mut from, mut keys_max) = (range.as_bytes().to_vec(), FIRST_PAGE_KEYS);
    loop {
        // Revision 0 reads the newest one.
        let options = GetOptions::new()
            .with_range(range_end(&range))
            .with_keys_only()
            .with_revision(list.revision.to_etcd());
        let page = queues.lists.range(from, options, keys_max, until).await?;
        if list.revision == Revision::default() {
            list.revision = page.revision;
        }
        for pair in page.get.kvs() {
            let part = queues.etcd.keys.part(&queue.resource, pair.key());
            let at = match part {
                Part::Holder | Part::Reader(_) => pair.mod_revision(),
                Part::Entry(_) => pair.create_revision(),
                Part::Other => continue,
            };
            list.keys.push((part, Revision::from_etcd(at)));
        }
        match page.next() {
            Some(next) => (from, keys_max) = (next, KEYS_MAX),
            None => return Ok(list),
        }
    }
}
