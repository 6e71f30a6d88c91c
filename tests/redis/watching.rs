//! Watching: one poller reads what is watched.

use std::collections::{BTreeMap, BTreeSet};

use leasehold::lock::{
    GrantId, Mode, ResourceId,
    inspect::{GrantView, Listing, LockView, PageRequest, Scope, Watch, WatchEvent},
};

use super::{
    costs::{executed, expected, reset},
    *,
};

/// The grants of each held resource.
type Held = BTreeMap<String, BTreeSet<GrantId>>;

fn ids(grants: &[GrantView]) -> BTreeSet<GrantId> {
    grants.iter().filter_map(|grant| grant.id).collect()
}

/// What a watch has told.
struct Table {
    watch: Watch,
    held: Held,
    /// The total of the last state.
    grants_total: usize,
    synced: bool,
    restarts: usize,
}

impl Table {
    fn of(store: &Store, scope: Scope) -> Self {
        let watch = store.watch(scope).unwrap();
        Self { watch, held: Held::new(), grants_total: 0, synced: false, restarts: 0 }
    }

    /// Returns once all states are told.
    async fn synced(store: &Store, scope: Scope) -> Self {
        let mut table = Self::of(store, scope);
        table.until("synced", |table| table.synced).await;
        table
    }

    async fn read(&mut self) {
        match self.watch.next().await.unwrap() {
            WatchEvent::Changed { lock, .. } if lock.grants.is_empty() => {
                self.grants_total = lock.grants_total;
                self.held.remove(lock.resource.as_str());
            }
            WatchEvent::Changed { lock, .. } => {
                self.grants_total = lock.grants_total;
                self.held.insert(lock.resource.to_string(), ids(&lock.grants));
            }
            WatchEvent::Synced => self.synced = true,
            WatchEvent::Restarted => {
                (self.held, self.synced) = (Held::new(), false);
                self.restarts += 1;
            }
        }
    }

    async fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let reads = async {
            while !is_so(self) {
                self.read().await;
            }
        };
        let told = tokio::time::timeout(SECOND * 30, reads).await;
        assert!(told.is_ok(), "never told: {what}; told are {:?}", self.held);
    }

    /// Reads until it is what a list of `prefix` tells, and says so.
    async fn until_listed(&mut self, store: &Store, prefix: &str) {
        let deadline = Instant::now() + SECOND * 30;
        loop {
            let listed = listed(store, prefix).await;
            if self.synced && self.held == listed {
                return;
            }
            assert!(Instant::now() < deadline, "told: {:?}, listed: {listed:?}", self.held);
            let _ = tokio::time::timeout(SECOND / 5, self.read()).await;
        }
    }
}

async fn listed(store: &Store, prefix: &str) -> Held {
    let mut listing = Listing {
        scope: Scope::prefix(prefix),
        holder_prefix: String::new(),
        page: PageRequest::first(100),
    };
    let mut held = Held::new();
    loop {
        let page = store.list(&listing).await.unwrap();
        let ids = |lock: LockView| (lock.resource.to_string(), ids(&lock.grants));
        held.extend(page.items.into_iter().map(ids));
        listing.page.after = page.next;
        if listing.page.after.is_none() {
            return held;
        }
    }
}

fn everything() -> Scope {
    Scope::prefix("")
}

fn only(name: &str) -> Scope {
    Scope::resource(ResourceId::new(name).unwrap())
}

fn connections(connection: &mut redis::Connection) -> usize {
    let clients: String = ask(connection, &["CLIENT", "LIST"]);
    clients.lines().count()
}

/// Random numbers that are the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }
}

/// Grants, renews, releases and forces at random, over two processes.
async fn change_at_random(stores: [&Store; 2], dice: &mut Dice, steps: usize) {
    let mut held = Vec::new();
    for _ in 0..steps {
        let store = stores[dice.below(2)];
        match dice.below(7) {
            0..4 => {
                let name = format!("r/{}", dice.below(40));
                let mode = if dice.below(2) == 0 { Mode::Shared } else { Mode::Exclusive };
                let ttl = if dice.below(4) == 0 { SECOND } else { MINUTE };
                let request = AcquireRequest { mode, ..request(&name, ttl) };
                if let Ok(granted) = store.try_lock(request).await {
                    granted.receipt.accept();
                    held.push((name, granted));
                }
            }
            4..6 if !held.is_empty() => {
                let (name, granted) = held.swap_remove(dice.below(held.len()));
                // It may have expired, or have been forced.
                let _ = store.unlock(unlock(&granted, &name)).await;
            }
            _ => {
                let _ = store.unlock(force(&format!("r/{}", dice.below(40)))).await;
            }
        }
    }
}

#[tokio::test]
async fn what_was_told_is_what_a_list_tells() {
    let server = RedisServer::start();
    let (here, there) = (open(&server).await, open(&server).await);
    take(&here, "elsewhere", MINUTE).await;
    let mut dice = Dice(7);
    change_at_random([&here, &there], &mut dice, 100).await;
    let mut of_all = Table::synced(&here, everything()).await;
    let mut of_some = Table::synced(&there, Scope::prefix("r/1")).await;
    for _ in 0..3 {
        change_at_random([&here, &there], &mut dice, 300).await;
        of_all.until_listed(&here, "").await;
        of_some.until_listed(&here, "r/1").await;
    }
    assert!(of_all.held.contains_key("elsewhere"));
    assert_eq!((of_all.restarts, of_some.restarts), (0, 0));
}

#[tokio::test]
async fn what_was_told_is_what_a_list_tells_though_the_connection_is_cut() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address()).await;
    let watching = try_open(proxy.address(), &[]).await.unwrap();
    let (here, there) = (open(&server).await, open(&server).await);
    let mut dice = Dice(11);
    let mut table = Table::synced(&watching, everything()).await;
    for cut in 1..=3 {
        change_at_random([&here, &there], &mut dice, 100).await;
        proxy.cut();
        change_at_random([&here, &there], &mut dice, 100).await;
        table.until("a restart", |table| table.restarts == cut).await;
        table.until_listed(&here, "").await;
    }
    assert_eq!(table.restarts, 3);
}

#[tokio::test]
async fn a_holder_that_went_during_an_outage_is_not_left() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address()).await;
    let (watching, other) =
        (try_open(proxy.address(), &[]).await.unwrap(), open(&server).await);
    let gone = take(&other, "gone", MINUTE).await;
    take(&other, "stays", MINUTE).await;
    let mut of_all = Table::synced(&watching, everything()).await;
    let mut of_one = Table::synced(&watching, only("gone")).await;
    assert_eq!(of_one.held.len(), 1);
    proxy.refuse(true);
    proxy.cut();
    of_all.until("a restart", |table| table.restarts == 1).await;
    other.unlock(unlock(&gone, "gone")).await.unwrap();
    proxy.refuse(false);
    of_all.until_listed(&other, "").await;
    of_one.until("all again", |table| table.restarts == 1 && table.synced).await;
    assert!(of_all.held.contains_key("stays"));
    assert!(of_one.held.is_empty());
    assert_eq!(of_all.restarts, 1, "an outage is told once");
}

#[tokio::test]
async fn nothing_is_held_after_all_data_were_deleted() {
    let server = RedisServer::start();
    let store = open(&server).await;
    for name in ["a", "b"] {
        take(&store, name, MINUTE).await;
    }
    let reader = AcquireRequest { mode: Mode::Shared, ..request("c", MINUTE) };
    store.try_lock(reader).await.unwrap().receipt.accept();
    let mut of_all = Table::synced(&store, everything()).await;
    let mut of_one = Table::synced(&store, only("c")).await;
    assert_eq!((of_all.held.len(), of_one.held.len()), (3, 1));
    let () = ask(&mut server.connect(), &["FLUSHALL"]);
    take(&store, "d", MINUTE).await;
    of_all.until_listed(&store, "").await;
    of_one.until("free", |table| table.held.is_empty()).await;
    assert_eq!(of_all.held.len(), 1);
}

#[tokio::test]
async fn the_holders_of_a_lost_master_are_forgotten_with_it() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let fixed = Proxy::start(old.address()).await;
    let store = try_open(fixed.address(), &[]).await.unwrap();
    take(&store, "r", MINUTE).await;
    let mut table = Table::synced(&store, everything()).await;
    assert_eq!(table.held.len(), 1);
    fixed.lead_to(new.address());
    // The connections to it stay.
    let () = ask(&mut old.connect(), &["REPLICAOF", "127.0.0.1", "1"]);
    table.until("a restart", |table| table.restarts > 0).await;
    table.until("all again", |table| table.synced).await;
    assert!(table.held.is_empty(), "{:?}", table.held);
}

#[tokio::test]
async fn a_newcomer_is_told_what_is_held_before_that_this_is_all() {
    let server = RedisServer::start();
    let (store, other) = (open(&server).await, open(&server).await);
    let _single = Table::synced(&store, only("a")).await;
    take(&other, "b/1", MINUTE).await;
    let _scope = Table::synced(&store, Scope::prefix("b/")).await;
    // Each wider than the one before, or the same.
    for (at, prefix) in ["b/", "b", "", ""].into_iter().enumerate() {
        take(&other, &format!("b/new/{at}"), MINUTE).await;
        let table = Table::synced(&store, Scope::prefix(prefix)).await;
        assert_eq!(table.held.len(), 2 + at, "{prefix}: {:?}", table.held);
    }
    take(&other, "c", MINUTE).await;
    assert_eq!(Table::synced(&store, only("c")).await.held.len(), 1);
}

#[tokio::test]
async fn more_locks_than_a_script_reads_are_told() {
    let server = RedisServer::start();
    let store = open(&server).await;
    for number in 0..300 {
        take(&store, &format!("r/{number}"), MINUTE).await;
    }
    let of_all = Table::synced(&store, everything()).await;
    assert_eq!(of_all.held, listed(&store, "").await);
    let mut of_each = Vec::new();
    for number in 0..100 {
        of_each.push(Table::of(&store, only(&format!("r/{number}"))));
    }
    for mut table in of_each {
        table.until("synced", |table| table.synced).await;
        assert_eq!(table.held.len(), 1);
    }
}

#[tokio::test]
async fn a_lock_that_leasehold_did_not_make_is_not_told() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let () = ask(&mut server.connect(), &["SET", "r", "owner", "EX", "60"]);
    assert!(Table::synced(&store, only("r")).await.held.is_empty());
    assert!(Table::synced(&store, everything()).await.held.is_empty());
}

#[tokio::test]
async fn a_lock_that_somebody_overwrote_is_told_as_free() {
    let server = RedisServer::start();
    let store = open(&server).await;
    take(&store, "r", MINUTE).await;
    let mut of_one = Table::synced(&store, only("r")).await;
    let mut of_all = Table::synced(&store, everything()).await;
    // In one step, so that it is never seen free.
    let () = ask(&mut server.connect(), &["SET", "r", "owner", "EX", "60"]);
    for table in [&mut of_one, &mut of_all] {
        table.until("free", |table| table.held.is_empty()).await;
        assert_eq!(table.grants_total, 0);
    }
}

#[tokio::test]
async fn a_user_that_may_not_search_is_told_so() {
    let server = RedisServer::start();
    let user = ["ACL", "SETUSER", "u", "on", ">p", "~*", "&*", "+@all", "-scan"];
    let () = ask(&mut server.connect(), &user);
    let store = open_with(&server, &[("redisUsername", "u"), ("redisPassword", "p")]).await;
    let watched = soon(store.watch(everything()).unwrap().next()).await;
    let page = PageRequest::first(1);
    let listing = Listing { scope: everything(), holder_prefix: String::new(), page };
    let listed = store.list(&listing).await.map(|_| ());
    for told in [watched.map(|_| ()), listed] {
        let Err(LockError::Unsupported(why)) = told else { panic!("{told:?}") };
        assert!(why.contains("docs/redis.md"), "{why}");
    }
    Table::synced(&store, only("r")).await;
}

#[tokio::test]
async fn a_hundred_watches_cost_one_connection_and_one_poller() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    let before = connections(&mut connection);
    let mut tables: Vec<_> = (0..100).map(|_| Table::of(&store, everything())).collect();
    for table in &mut tables {
        table.until("synced", |table| table.synced).await;
    }
    assert_eq!(connections(&mut connection), before + 1);
    reset(&mut connection);
    take(&store, "r", MINUTE).await;
    for table in &mut tables {
        table.until("the grant", |table| table.held.len() == 1).await;
    }
    // One every two seconds, so that even in half a minute there are not so many.
    let searches = executed(&mut connection)["scan"];
    assert!(searches < tables.len() as u64, "{searches} searches");
}

#[tokio::test]
async fn the_poller_ends_with_the_last_watch() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    let before = connections(&mut connection);
    let first = Table::synced(&store, everything()).await;
    let second = Table::synced(&store, only("r")).await;
    drop(first);
    assert_eq!(connections(&mut connection), before + 1);
    drop(second);
    until("the poller has gone", || connections(&mut connection) == before).await;
}

#[tokio::test]
async fn nothing_is_searched_for_while_single_resources_are_watched_alone() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    let mut table = Table::synced(&store, only("r")).await;
    drop(Table::synced(&store, everything()).await);
    take(&store, "r", MINUTE).await;
    table.until("the grant", |table| table.held.len() == 1).await;
    reset(&mut connection);
    for at in 0..3 {
        store.unlock(force("r")).await.unwrap();
        table.until("free", |table| table.held.is_empty()).await;
        take(&store, "r", MINUTE).await;
        table.until("the grant", |table| table.held.len() == 1).await;
        assert_eq!(executed(&mut connection).get("scan"), None, "in round {at}");
    }
}

#[tokio::test]
async fn a_watch_adds_nothing_to_a_lock() {
    let server = RedisServer::start();
    let (store, watching) = (open(&server).await, open(&server).await);
    let mut connection = server.connect();
    let _single = Table::synced(&watching, only("other")).await;
    reset(&mut connection);
    let mut table = Table::synced(&watching, everything()).await;
    // The commands of the poller alone.
    let polling: BTreeSet<_> = executed(&mut connection).into_keys().collect();
    assert!(polling.contains("scan"), "{polling:?}");
    reset(&mut connection);
    let granted = take(&store, "r", MINUTE).await;
    store.unlock(unlock(&granted, "r")).await.unwrap();
    take(&store, "last", MINUTE).await;
    table.until("the last grant", |table| table.held.contains_key("last")).await;
    let spent: BTreeMap<_, _> = executed(&mut connection)
        .into_iter()
        .filter(|(name, _)| !polling.contains(name))
        .collect();
    // Two locks and an unlock.
    for (name, calls) in [("set", 4), ("getset", 2), ("zpopmin", 1)] {
        assert_eq!(spent.get(name), Some(&calls), "{name} in {spent:?}");
    }
}

/// Waits for that many readings of a poller, and returns what each of them costs.
async fn cost_of_a_reading(
    connection: &mut redis::Connection,
    readings: u64,
) -> BTreeMap<String, u64> {
    reset(connection);
    let mut spent = BTreeMap::new();
    until("enough readings", || {
        spent = executed(connection);
        spent.get("evalsha").is_some_and(|scripts| *scripts >= readings)
    })
    .await;
    let scripts = spent["evalsha"];
    // The check of the connection for the locks.
    for name in ["hello", "publish", "time"] {
        spent.remove(name);
    }
    spent.into_iter().map(|(name, calls)| (name, calls / scripts)).collect()
}

#[tokio::test]
async fn to_read_a_resource_costs_seven_commands_and_a_free_one_five() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    let _table = Table::synced(&store, only("r")).await;
    let free = [("evalsha", 1), ("mget", 1), ("zcard", 1), ("pttl", 1), ("del", 1)];
    assert_eq!(cost_of_a_reading(&mut connection, 2).await, expected(&free));
    take(&store, "r", MINUTE).await;
    let held = [("evalsha", 1), ("mget", 1), ("zcard", 1), ("pttl", 3), ("del", 1)];
    assert_eq!(cost_of_a_reading(&mut connection, 2).await, expected(&held));
}
