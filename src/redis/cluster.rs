//! The nodes of a Cluster: which of them has which slot, and a link to each that has some.

mod ask;

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
    time::Duration,
};

use ::redis::Client;
use futures_util::future::join_all;
use leasehold_lock::{
    OpenError,
    observe::{Observe, Unobserved},
};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep, sleep_until, timeout_at},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::warn;

use super::{
    config::ClusterSetup,
    hearing::Hearing,
    keys::Slot,
    link::Link,
    master::address_like,
    member::Member,
    refusal::{NamedBy, Server},
    route::Route,
    session::{OPEN_TIMEOUT, Session},
    silence::SUSPICIOUS,
    table::SlotTable,
    view::{Address, View},
};

/// The shortest time between two rounds of questions.
const ROUND_MIN: Duration = Duration::from_secs(1);
/// The longest time between two rounds.
const ROUND_MAX: Duration = Duration::from_secs(5);
/// For how long after a redirection to it a node without slots is needed.
const NAMED_FOR: Duration = Duration::from_secs(10);
/// How long a link is kept that is not needed, so that it can end its former connections.
const KEPT_FOR: Duration = Duration::from_secs(60);
/// How many links there may be.
const LINKS_MAX: usize = 1000;

/// The nodes of a Cluster.
pub(super) struct Cluster {
    setup: ClusterSetup,
    table: watch::Sender<SlotTable>,
    nodes: Mutex<BTreeMap<Arc<Address>, Arc<Node>>>,
    /// Notified when the table may be out of date.
    stale: Notify,
    hearing: Hearing,
    operation_timeout: Duration,
    observer: Arc<dyn Observe>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// A node with a link to it.
pub(super) struct Node {
    member: Arc<Member>,
    pub(super) link: Arc<Link>,
    /// Until when it is or was needed, as far as is known.
    needed_until: Mutex<Instant>,
    stop: CancellationToken,
}

impl Node {
    pub(super) fn address(&self) -> &Arc<Address> {
        &self.member.address
    }
}

impl Cluster {
    /// Asks the nodes that are listed, and connects to all that have slots. At least one must
    /// answer.
    pub(super) async fn open(
        setup: ClusterSetup,
        hearing: Hearing,
        operation_timeout: Duration,
        observer: Arc<dyn Observe>,
        tasks: TaskTracker,
        stop: CancellationToken,
    ) -> Result<Arc<Self>, OpenError> {
        let until = Instant::now() + OPEN_TIMEOUT;
        let cluster = Arc::new(Self {
            setup,
            table: watch::Sender::new(SlotTable::new()),
            nodes: Mutex::default(),
            stale: Notify::new(),
            hearing,
            operation_timeout,
            observer,
            tasks,
            stop,
        });
        cluster.ask_listed().await?;
        cluster.connect_all(until).await?;
        cluster.tasks.spawn(Arc::clone(&cluster).keep_up_to_date());
        Ok(cluster)
    }

    /// Follows the table.
    pub(super) fn tables(&self) -> watch::Receiver<SlotTable> {
        self.table.subscribe()
    }

    /// The node that has a slot, and the epoch of its claim.
    pub(super) fn owner_of(self: &Arc<Self>, slot: Slot) -> (Option<Arc<Node>>, u64) {
        let owner = self.table.borrow().owner(slot).map(|it| (Arc::clone(&it.node), it.epoch));
        match owner {
            Some((address, epoch)) => (self.node(&address), epoch),
            None => (None, 0),
        }
    }

    /// The link to the node that has a slot.
    pub(super) fn link_of(self: &Arc<Self>, slot: Slot) -> Option<Arc<Link>> {
        self.owner_of(slot).0.map(|node| Arc::clone(&node.link))
    }

    /// A number of the node that has a slot; 0 if none is known.
    pub(super) fn server_of(&self, slot: Slot) -> u64 {
        let table = self.table.borrow();
        table.owner(slot).map_or(0, |owner| {
            let mut hasher = DefaultHasher::new();
            owner.node.hash(&mut hasher);
            hasher.finish()
        })
    }

    /// The links to all nodes that have slots.
    pub(super) fn links(self: &Arc<Self>) -> Vec<Arc<Link>> {
        let owners = self.table.borrow().owners();
        let nodes = owners.iter().filter_map(|address| self.node(address));
        nodes.map(|node| Arc::clone(&node.link)).collect()
    }

    /// The node that a redirection names.
    pub(super) fn named(self: &Arc<Self>, address: Address) -> Option<Arc<Node>> {
        let address = self.table.borrow().named(address);
        let node = self.node(&address)?;
        *node.needed_until.lock() = Instant::now() + NAMED_FOR;
        node.member.set_needed(true);
        Some(node)
    }

    /// The link to the node with this ID, if it is known.
    pub(super) fn link_by_id(self: &Arc<Self>, id: &str) -> Option<Arc<Link>> {
        let address = self.table.borrow().address_of(id)?;
        // It may have no slots yet.
        self.named((*address).clone()).map(|node| Arc::clone(&node.link))
    }

    /// Asks the nodes at once.
    pub(super) async fn ask_now(self: &Arc<Self>) {
        self.ask_all(self.is_troubled()).await;
        self.use_nodes();
    }

    /// Another one with links of its own.
    pub(super) async fn again(
        &self,
        tasks: TaskTracker,
        stop: CancellationToken,
    ) -> Result<Arc<Self>, OpenError> {
        let within = self.operation_timeout;
        let (setup, observer) = (self.setup.clone(), Unobserved::store());
        Self::open(setup, Hearing::default(), within, observer, tasks, stop).await
    }

    /// Asks the nodes again soon.
    pub(super) fn ask_again(&self) {
        self.stale.notify_one();
    }

    /// The node at this address. `None` if there are too many, or it cannot be one.
    fn node(self: &Arc<Self>, address: &Arc<Address>) -> Option<Arc<Node>> {
        let mut nodes = self.nodes.lock();
        if let Some(node) = nodes.get(address) {
            return Some(Arc::clone(node));
        }
        if nodes.len() >= LINKS_MAX {
            return None;
        }
        let node = self.new_node(address, None)?;
        nodes.insert(Arc::clone(address), Arc::clone(&node));
        Some(node)
    }

    fn new_node(&self, address: &Arc<Address>, first: Option<Session>) -> Option<Arc<Node>> {
        let member = self.member(address)?;
        let link = Arc::new(Link::new(first, self.operation_timeout));
        let stop = self.stop.child_token();
        let route = Arc::new(Route::Member(Arc::clone(&member)));
        let hearing = self.hearing.at(Arc::clone(&member));
        let observer = Arc::clone(&self.observer);
        self.tasks.spawn(Arc::clone(&link).keep(route, hearing, observer, stop.clone()));
        let needed_until = Mutex::new(Instant::now());
        Some(Arc::new(Node { member, link, needed_until, stop }))
    }

    fn member(&self, address: &Arc<Address>) -> Option<Arc<Member>> {
        let client = self.client(address)?;
        Some(Arc::new(Member::new(Arc::clone(address), client, self.table.subscribe())))
    }

    fn client(&self, address: &Address) -> Option<Client> {
        let like = &self.setup.node;
        let at = address_like(like.addr(), address.host.clone(), address.port);
        match Client::open(like.clone().set_addr(at)) {
            Ok(client) => Some(client),
            Err(error) => {
                warn!(%address, %error, "the Cluster has a node whose address cannot be used");
                None
            }
        }
    }

    /// Opens the connections to all nodes that have slots.
    async fn connect_all(self: &Arc<Self>, until: Instant) -> Result<(), OpenError> {
        let owners = self.table.borrow().owners();
        let opened = owners.iter().filter_map(|address| {
            let member = self.member(address)?;
            let master = member.master();
            let hearing = self.hearing.at(member);
            Some(async move {
                let opening = timeout_at(until, Session::open(master.clone(), &[], &hearing));
                let server = Server { master: &master, named_by: Some(NamedBy::Cluster) };
                let opened = match opening.await {
                    Ok(opened) => opened.map_err(|failure| server.refusal(&failure)),
                    Err(_) => Err(server.unreached("Redis did not answer in time")),
                };
                (address, opened)
            })
        });
        let (mut is_connected, mut refusal) = (false, None);
        for (address, opened) in join_all(opened).await {
            match opened {
                Ok(session) => {
                    is_connected = true;
                    if let Some(node) = self.new_node(address, Some(session)) {
                        self.nodes.lock().insert(Arc::clone(address), node);
                    }
                }
                Err(why @ OpenError::Refused(_)) => return Err(why),
                Err(OpenError::Unavailable(why)) => {
                    warn!(%why, "a node of the Cluster cannot be used");
                    refusal = Some(OpenError::Unavailable(why));
                }
            }
        }
        match refusal {
            Some(refusal) if !is_connected => Err(refusal),
            _ => Ok(()),
        }
    }

    /// The connections to the nodes that have slots.
    pub(super) fn sessions(self: &Arc<Self>) -> Vec<Arc<Session>> {
        self.links().iter().filter_map(|link| link.alive()).collect()
    }

    /// Asks the nodes again when there is a reason, and regularly.
    async fn keep_up_to_date(self: Arc<Self>) {
        let work = async {
            let mut last = Instant::now();
            loop {
                let is_stale = tokio::select! {
                    () = self.stale.notified() => true,
                    () = sleep(ROUND_MIN) => false,
                };
                let is_troubled = is_stale || self.is_troubled();
                if is_troubled || last.elapsed() >= ROUND_MAX {
                    last = Instant::now();
                    self.ask_all(is_troubled).await;
                    self.use_nodes();
                    sleep_until(last + ROUND_MIN).await;
                }
            }
        };
        self.stop.run_until_cancelled(work).await;
    }

    /// Whether a node that has slots does not answer.
    fn is_troubled(self: &Arc<Self>) -> bool {
        let is_fine = |link: &Arc<Link>| {
            link.alive().is_some_and(|session| !session.owed.is_silent_for(SUSPICIOUS))
        };
        !self.links().iter().all(is_fine)
    }

    fn merge(&self, views: Vec<View>) -> bool {
        self.table.send_if_modified(|table| table.merge(views, Instant::now()))
    }

    /// Links all nodes that have slots, and gives up those that have none.
    fn use_nodes(self: &Arc<Self>) {
        let owners = self.table.borrow().owners();
        for address in &owners {
            let _ = self.node(address);
        }
        let now = Instant::now();
        self.nodes.lock().retain(|address, node| {
            let mut needed_until = node.needed_until.lock();
            if owners.contains(address) {
                *needed_until = (*needed_until).max(now);
            }
            node.member.set_needed(*needed_until >= now);
            let is_kept = now < *needed_until + KEPT_FOR;
            if !is_kept {
                node.stop.cancel();
            }
            is_kept
        });
    }
}
