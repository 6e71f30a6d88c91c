//! Client processes follow their roles.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use leasehold_reliability::{
    client::Role,
    clock,
    history::{Call, Mode, Operation, Outcome, read_folder},
    world::{Backend, World},
};
use leasehold_testkit::wait::eventually;
use tempfile::TempDir;
use tokio::{
    process::{Child, Command},
    time::timeout,
};

const SOON: Duration = Duration::from_secs(40);
const HOUR_MS: u64 = 3_600_000;

/// A client process, and what it has recorded.
struct Clients {
    world: World,
    child: Child,
    folder: TempDir,
    _logs: TempDir,
}

impl Clients {
    async fn start(role: Role, clients: u32, arguments: &[&str]) -> Self {
        let fronts = if role == Role::Front { 2 } else { 0 };
        let (world, logs) = World::with_fronts(Backend::Redis, 1, fronts).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let history = folder.path().join("history-1.jsonl");
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold-reliability"));
        command.arg("client").arg(format!("--role={}", role.name()));
        for socket in world.sockets() {
            command.arg(format!("--socket={}", socket.display()));
        }
        command
            .args(["--process=1", "--seed=1"])
            .arg(format!("--clients={clients}"))
            .arg(format!("--began-ns={}", clock::now_ns()))
            .arg(format!("--redis={}", world.redis_address().unwrap()))
            .arg(format!("--history={}", history.display()))
            .args(world.fronts().iter().map(|front| format!("--front={front}")))
            .args(arguments)
            .stdin(Stdio::piped())
            .kill_on_drop(true);
        let child = command.spawn().unwrap();
        Self { world, child, folder, _logs: logs }
    }

    /// Returns once the condition is true and all clients have ended their last calls.
    async fn until(mut self, what: &str, is_so: impl Fn(&[Operation]) -> bool) {
        eventually(SOON, what, async || {
            let operations = recorded(self.folder.path())?;
            anyhow::ensure!(is_so(&operations), "{} calls", operations.len());
            Ok(())
        })
        .await
        .unwrap();
        drop(self.child.stdin.take());
        let ended = timeout(SOON, self.child.wait()).await.expect("it ends").unwrap();
        assert!(ended.success());
        self.world.stop().await;
    }
}

fn recorded(folder: &Path) -> anyhow::Result<Vec<Operation>> {
    anyhow::ensure!(PathBuf::from(folder).join("history-1.jsonl").exists(), "nothing yet");
    read_folder(folder)
}

/// The calls by lock ID, including those that were granted it.
fn by_lock_id(operations: &[Operation]) -> BTreeMap<&str, Vec<&Operation>> {
    let mut by_id: BTreeMap<&str, Vec<&Operation>> = BTreeMap::new();
    for operation in operations {
        let lock_id = match (&operation.invocation.call, operation.granted()) {
            (_, Some(granted)) => &granted.lock_id,
            (Call::Renew { lock_id, .. } | Call::Unlock { lock_id }, None) => lock_id,
            _ => continue,
        };
        by_id.entry(lock_id).or_default().push(operation);
    }
    by_id
}

fn succeeded(operation: &Operation) -> bool {
    matches!(
        operation.known(),
        Some(Outcome::Granted(_) | Outcome::Renewed { .. } | Outcome::Unlocked)
    )
}

#[tokio::test]
async fn sharing_clients_renew_a_grant_at_another_process_and_at_its_own_again() {
    let clients = Clients::start(Role::Sharing, 12, &["--resources=12"]).await;
    clients
        .until("a grant is passed on", |operations| {
            by_lock_id(operations).values().any(|calls| {
                let ways: Vec<_> = calls
                    .iter()
                    .filter(|call| succeeded(call))
                    .map(|call| call.invocation.via)
                    .collect();
                ways.windows(3).any(|three| three[0] == three[2] && three[0] != three[1])
            })
        })
        .await;
}

#[tokio::test]
async fn sharing_clients_hold_a_grant_to_its_safe_deadline() {
    let clients = Clients::start(Role::Sharing, 12, &["--resources=12"]).await;
    clients
        .until("a grant is used in the last fifth of its TTL", |operations| {
            by_lock_id(operations).values().any(|calls| {
                calls.windows(2).any(|two| {
                    let ttl_ns = match two[0].known() {
                        Some(Outcome::Granted(granted)) => granted.ttl_ns,
                        Some(Outcome::Renewed { ttl_ns }) => *ttl_ns,
                        _ => return false,
                    };
                    let held_ns = two[1].invoked_ns() - two[0].completed_ns();
                    succeeded(two[1]) && held_ns > ttl_ns / 5 * 4
                })
            })
        })
        .await;
}

#[tokio::test]
async fn lasting_clients_unlock_at_once_what_they_lock_for_hours() {
    let clients = Clients::start(Role::Lasting, 4, &[]).await;
    clients
        .until("a hundred such locks are unlocked", |operations| {
            let by_id = by_lock_id(operations);
            let unlocked = by_id.values().filter(|calls| {
                let lasts = calls[0].invocation.call.acquisition();
                lasts.is_some_and(|asked| asked.ttl_ms >= HOUR_MS)
                    && calls.last().is_some_and(|last| last.known() == Some(&Outcome::Unlocked))
            });
            unlocked.count() > 100
        })
        .await;
}

#[tokio::test]
async fn keepers_renew_what_they_hold_each_third_of_its_ttl() {
    let clients = Clients::start(Role::Keepers, 50, &["--ttl-ms=3000"]).await;
    clients
        .until(
            "grants are renewed four times in a row, a third of the TTL apart",
            |operations| {
                // On a busy machine many renewals are late, so ten grants must suffice.
                let apart_ns = 800_000_000..1_400_000_000;
                let by_id = by_lock_id(operations);
                let kept = by_id.values().filter(|calls| {
                    calls.windows(5).any(|row| {
                        row.iter().all(|call| succeeded(call))
                            && row.windows(2).all(|two| {
                                apart_ns.contains(&(two[1].invoked_ns() - two[0].invoked_ns()))
                            })
                    })
                });
                kept.count() >= 10
            },
        )
        .await;
}

#[tokio::test]
async fn a_crowd_waits_at_one_process_all_at_once() {
    let arguments = ["--resources=4", "--wait-ms=15000"];
    let clients = Clients::start(Role::Crowd, 300, &arguments).await;
    clients
        .until("200 wait", |operations| {
            let open = operations.iter().filter(|operation| {
                operation.completion.is_none()
                    && matches!(operation.invocation.call, Call::Lock { .. })
                    && operation.invocation.via == Some(0)
            });
            open.count() > 200
        })
        .await;
}

#[tokio::test]
async fn visitors_try_and_wait_for_different_resources() {
    let clients = Clients::start(Role::Visitors, 6, &["--resources=8"]).await;
    clients
        .until("both are granted", |operations| {
            let granted = |waits: bool| {
                operations.iter().any(|operation| {
                    operation.granted().is_some()
                        && matches!(operation.invocation.call, Call::Lock { .. }) == waits
                })
            };
            granted(true) && granted(false)
        })
        .await;
}

#[tokio::test]
async fn waiters_have_longer_deadlines_than_the_operation_timeout() {
    let clients = Clients::start(Role::Waiters, 16, &["--resources=2"]).await;
    clients
        .until("a long wait is served", |operations| {
            operations.iter().any(|operation| {
                let waited = operation.granted().map_or(0, |granted| granted.waited_ns);
                waited > 1_000_000_000
                    && matches!(operation.invocation.call, Call::Lock { wait_ms, .. }
                        if wait_ms >= 6_000)
            })
        })
        .await;
}

#[tokio::test]
async fn few_clients_hold_for_seconds() {
    let clients = Clients::start(Role::Few, 4, &["--resources=2"]).await;
    clients
        .until("a grant was held for a second", |operations| {
            by_lock_id(operations).values().any(|calls| {
                calls.len() == 2
                    && calls[1].invoked_ns() - calls[0].completed_ns() > 1_000_000_000
            })
        })
        .await;
}

#[tokio::test]
async fn the_readers_of_a_group_hold_at_the_same_time() {
    let clients = Clients::start(Role::Meeting, 10, &["--resources=2"]).await;
    clients
        .until("three of the four readers of a group hold", |operations| {
            let by_id = by_lock_id(operations);
            let held = |at_ns: u64, resource: &str| {
                let holds = by_id.values().filter(|calls| {
                    calls[0].mode() == Mode::Shared
                        && calls[0].invocation.resource == resource
                        && calls[0].completed_ns() <= at_ns
                        && calls.last().is_some_and(|last| last.invoked_ns() > at_ns)
                });
                holds.count()
            };
            operations.iter().filter(|operation| operation.granted().is_some()).any(
                |operation| {
                    held(operation.completed_ns(), &operation.invocation.resource) >= 3
                        && operation.mode() == Mode::Shared
                },
            )
        })
        .await;
}

#[tokio::test]
async fn foreign_clients_lock_in_redis_and_unlock_what_leasehold_granted() {
    let clients = Clients::start(Role::Foreign, 12, &["--resources=3"]).await;
    clients
        .until("both have happened", |operations| {
            let takes = operations.iter().any(|operation| {
                matches!(operation.invocation.call, Call::ForeignTry(_)) && succeeded(operation)
            });
            let ends = by_lock_id(operations).values().any(|calls| {
                calls.windows(2).any(|two| {
                    two[0].granted().is_some_and(|granted| granted.token > 0)
                        && two[1].invocation.via.is_none()
                        && two[1].known() == Some(&Outcome::Unlocked)
                })
            });
            takes && ends
        })
        .await;
}

#[tokio::test]
async fn clients_of_fronts_lock_as_each_library_does() {
    // One client for each library.
    let libraries = 7;
    let clients = Clients::start(Role::Front, libraries, &[]).await;
    clients
        .until("each takes a lock, and most renew and release one", |operations| {
            let done = |is_so: fn(&Operation) -> bool| {
                let by = operations.iter().filter(|it| it.is_through_front() && is_so(it));
                by.map(|it| it.invocation.client).collect::<BTreeSet<_>>().len()
            };
            let takes = done(|it| it.granted().is_some());
            let renews = done(|it| matches!(it.known(), Some(Outcome::Renewed { .. })));
            let releases = done(|it| it.known() == Some(&Outcome::Unlocked));
            // Dapr's lock.redis never renews.
            (takes, renews, releases) == (7, 6, 7)
        })
        .await;
}
