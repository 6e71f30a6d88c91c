//! The cases that every client library has, against the real `leasehold`, and those of this one.
//!
//! `LEASEHOLD_TEST_SIDECAR` names the launcher, `LEASEHOLD_BACKENDS` the backends (by default
//! `memory,redis,etcd`).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test panics, and a child prints"
)]

mod child;
mod failures;
mod fences;
mod holding;
mod losses;
mod reentry;
mod rust;
mod stage;
mod support;
mod work;

use std::{env, pin::Pin, process::ExitCode, sync::Arc};

use libtest_mimic::{Arguments, Trial};

use crate::stage::Backend;

type Case = fn(Arc<Backend>) -> Pin<Box<dyn Future<Output = ()>>>;

/// Most cases wait most of the time.
const THREADS: usize = 6;

/// The cases of a module, by name.
macro_rules! cases {
    ($($module:ident: $($name:ident),+;)+) => {
        &[$($((stringify!($name), (|backend| Box::pin($module::$name(backend))) as Case)),+),+]
    };
}

const CASES: &[(&str, Case)] = cases! {
    holding: a_lock_is_taken_and_released, stop_before_counts, a_try_of_a_held_lock_gives_nothing,
        a_lock_waits_for_its_turn, a_wait_ends_at_its_limit,
        a_try_that_may_not_wait_names_the_holder, the_label_is_seen_by_inspection,
        namespaces_are_apart, readers_share_a_lock, a_repeated_request_id_finds_its_grant,
        a_bad_option_is_named, an_unlock_is_idempotent, an_unlock_is_not_cancelled_with_its_caller,
        a_cancelled_wait_leaves_nothing, a_channel_of_the_caller_is_used_and_left_open;
    reentry: a_reentrant_lock_counts, a_reentrant_lock_lasts_until_its_last_end,
        a_lock_is_not_reentrant_by_default, an_inner_handle_reports_the_loss;
    losses: max_hold_ends_the_lock, max_hold_ends_a_lock_of_a_short_ttl,
        max_hold_ends_a_lock_without_the_sidecar, a_forced_unlock_cancels_the_work,
        a_killed_sidecar_cancels_the_work,
        a_stopped_sidecar_cancels_the_work, a_dark_connection_is_replaced,
        a_suspended_sidecar_cancels_the_work_before_the_deadline,
        a_cut_off_sidecar_cancels_the_work_before_the_deadline,
        a_cut_connection_cancels_the_work, work_that_blocks_sees_the_loss_by_check,
        a_blocked_runtime_sees_the_loss_by_check, a_loss_is_not_starved,
        a_short_silence_of_the_sidecar_is_survived, a_grant_that_comes_too_late_is_not_acquired;
    failures: the_error_of_the_work_wins, a_loss_that_the_work_returns_is_no_error_of_its_own,
        a_failed_unlock_does_not_hide_the_error_of_the_work,
        an_unlock_that_finds_nothing_reports_the_loss,
        the_message_is_complete_and_nothing_comes_twice, an_http_port_is_named, a_wait_whose_connection_breaks_is_unavailable;
    child: a_killed_process_frees_the_lock, a_suspended_process_sees_the_loss_by_check,
        the_address_and_token_come_from_the_environment;
    fences: a_stale_token_is_refused_by_the_sql_of_the_readme;
    rust: every_future_can_be_sent, secrets_are_not_shown, a_dropped_handle_frees_the_lock,
        a_dropped_run_drops_the_work_before_the_lock,
        a_dropped_wait_for_the_loss_changes_nothing, a_panic_of_the_work_frees_the_lock,
        a_lock_outlives_many_ttls, a_handle_reports_its_loss;
};

fn main() -> ExitCode {
    if let Some(role) = env::var_os(child::ROLE) {
        return child::main(&role.to_string_lossy());
    }
    let named =
        env::var("LEASEHOLD_BACKENDS").unwrap_or_else(|_| "memory,redis,etcd".to_owned());
    let mut trials = Vec::new();
    for backend in named.split(',').map(|name| Arc::new(Backend::new(name))) {
        for (name, case) in CASES {
            let (backend, case) = (backend.clone(), *case);
            trials.push(Trial::test(format!("{}::{name}", backend.name), move || {
                support::run(case(backend));
                Ok(())
            }));
        }
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(THREADS);
    libtest_mimic::run(&arguments, trials).exit_code()
}
