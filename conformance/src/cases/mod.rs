//! The cases, a file per theme.

use crate::case::{Case, CaseInfo, Cases};

mod cancel;
mod end_locks;
mod errors;
mod exclusion;
mod fair;
mod fencing;
mod force;
mod free_again;
mod hand_over;
mod history;
mod init;
mod inspection;
mod invalid;
mod limits;
mod linearizable;
mod list_waiters;
mod lock_id;
mod names;
mod renew;
mod renew_races;
mod replay;
mod services;
mod shared;
mod shared_load;
mod shared_queue;
mod shared_replay;
mod shared_two;
mod try_lock;
mod ttl;
mod two_processes;
mod unlock;
mod wait;
mod watch;

/// Every case, in the order of the run, without connecting to anything.
#[must_use]
pub fn catalogue() -> Vec<CaseInfo> {
    all().into_iter().map(|case| case.info).collect()
}

/// Every case with its code, in the order of the run.
pub(crate) fn all() -> Vec<Case> {
    let mut cases = Cases::new();
    cases.theme("init", init::tests);
    cases.theme("services", services::tests);
    cases.theme("errors", errors::tests);
    cases.theme("try", try_lock::tests);
    cases.theme("try", free_again::tests);
    cases.theme("names", names::tests);
    cases.theme("lock id", lock_id::tests);
    cases.theme("ttl", ttl::tests);
    cases.theme("renew", renew::tests);
    cases.theme("renew", renew_races::tests);
    cases.theme("unlock", unlock::tests);
    cases.theme("wait", wait::tests);
    cases.theme("wait", hand_over::tests);
    cases.theme("cancel", cancel::tests);
    cases.theme("exclusion", exclusion::tests);
    cases.theme("invalid", invalid::tests);
    cases.theme("limits", limits::tests);
    cases.theme("fencing", fencing::tests);
    cases.theme("force", force::tests);
    cases.theme("fair", fair::tests);
    cases.theme("replay", replay::tests);
    cases.theme("linearizable", linearizable::tests);
    cases.theme("shared", shared::tests);
    cases.theme("shared", shared_queue::tests);
    cases.theme("shared", shared_replay::tests);
    cases.theme("shared", shared_two::tests);
    cases.theme("shared", shared_load::tests);
    cases.theme("inspection", inspection::tests);
    cases.theme("inspection", end_locks::tests);
    cases.theme("watch", watch::tests);
    cases.theme("two processes", two_processes::tests);
    cases.theme("restart", fencing::restart_tests);
    cases.into_list()
}
