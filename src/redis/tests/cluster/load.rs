//! Slots that move under load.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;

/// What a resource would be: it sees who is inside, and with which token.
#[derive(Default)]
struct Guarded {
    is_taken: AtomicBool,
    last: AtomicU64,
    entries: AtomicU64,
}

impl Guarded {
    async fn enter(&self, token: u64) {
        assert!(!self.is_taken.swap(true, Ordering::SeqCst), "two are inside");
        let last = self.last.swap(token, Ordering::SeqCst);
        assert!(last < token, "{token} after {last}");
        self.entries.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(SECOND / 500).await;
        self.is_taken.store(false, Ordering::SeqCst);
    }
}

/// Takes the lock and releases it, until `is_over`.
async fn work(store: Store, name: String, guarded: Arc<Guarded>, is_over: Arc<AtomicBool>) {
    while !is_over.load(Ordering::SeqCst) {
        let granted = soon(store.lock(request(&name, MINUTE))).await;
        let granted = match granted {
            Ok(granted) => granted,
            // It is undone in the background.
            Err(LockError::OutcomeUnknown(_) | LockError::StoreUnavailable(_)) => continue,
            Err(error) => panic!("{error:?}"),
        };
        granted.receipt.accept();
        guarded.enter(granted.token.unwrap().get()).await;
        match soon(store.unlock(unlock(&granted, &name))).await {
            Ok(()) => {}
            // It may have happened. If it did not, the others would wait for a minute.
            Err(LockError::OutcomeUnknown(_) | LockError::StoreUnavailable(_)) => {
                let _ = store.unlock(unlock(&granted, &name)).await;
            }
            Err(error) => panic!("{error:?}"),
        }
    }
}

async fn moved_under_load(rounds: usize) {
    let cluster = RedisCluster::start(3, 0);
    let stores = [open_cluster(&cluster).await, open_cluster(&cluster).await];
    // All in one slot.
    let owner = cluster.first_owner(slot("x"));
    let names: Vec<_> = (0..4).map(|n| format!("{{x}}{n}")).collect();
    let is_over = Arc::new(AtomicBool::new(false));
    let (mut workers, mut all) = (Vec::new(), Vec::new());
    for name in &names {
        let guarded = Arc::new(Guarded::default());
        for worker in 0..4 {
            workers.push(tokio::spawn(work(
                stores[worker % 2].clone(),
                name.clone(),
                Arc::clone(&guarded),
                Arc::clone(&is_over),
            )));
        }
        all.push(guarded);
    }
    let cluster = Arc::new(cluster);
    let mut at = owner;
    for round in 0..rounds {
        let before: u64 = all.iter().map(|it| it.entries.load(Ordering::SeqCst)).sum();
        until("there is progress", || {
            let now: u64 = all.iter().map(|it| it.entries.load(Ordering::SeqCst)).sum();
            now > before + 20
        })
        .await;
        let to = (at + 1 + round % 2) % 3;
        let (moving, from) = (Arc::clone(&cluster), at);
        tokio::task::spawn_blocking(move || moving.move_slot(slot("x"), from, to))
            .await
            .unwrap();
        at = to;
    }
    is_over.store(true, Ordering::SeqCst);
    for worker in workers {
        soon(worker).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_holds_at_a_time_while_the_slot_moves() {
    moved_under_load(6).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "cluster: moves a slot often; make test-all runs it"]
async fn one_holds_at_a_time_while_the_slot_moves_often() {
    moved_under_load(60).await;
}

#[tokio::test]
#[ignore = "cluster: many wait; make test-all runs it"]
async fn five_thousand_wait_while_their_slots_move() {
    let cluster = RedisCluster::start(3, 0);
    let (here, there) = (open_cluster(&cluster).await, open_cluster(&cluster).await);
    let names: Vec<_> = names_at(&cluster, 0).take(50).collect();
    let mut held = Vec::new();
    for name in &names {
        held.push(take(&here, name, MINUTE * 5).await);
    }
    let mut waits = Vec::new();
    for _ in 0..100 {
        for name in &names {
            waits.push(wait(&there, name, MINUTE));
        }
    }
    let mut connections = [0, 1].map(|node| cluster.nodes[node].connect());
    let mut queued = |node: usize| -> usize {
        names.iter().map(|name| waiting(&mut connections[node], name)).sum()
    };
    until("queued", || queued(0) == 5000).await;
    for name in &names {
        cluster.move_slot(slot(name), 0, 1);
    }
    assert_eq!(queued(1), 5000);
    for (name, held) in names.iter().zip(&held) {
        here.unlock(unlock(held, name)).await.unwrap();
    }
    let mut connection = cluster.nodes[1].connect();
    until("one of each name is granted", || {
        names.iter().all(|name| {
            let value: Option<String> = ask(&mut connection, &["GET", name]);
            value.is_some_and(|value| !value.starts_with('\x01'))
        })
    })
    .await;
    let granted = waits.iter().filter(|wait| wait.is_finished()).count();
    assert!(granted <= names.len(), "{granted} of {} names", names.len());
}
