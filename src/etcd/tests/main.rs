//! The etcd backend on real servers, of every version it is made for.
//!
//! What depends on the version is run on each. A version that is left out, or whose etcd is
//! missing, is printed as ignored.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "test code without the harness that clippy knows"
)]

mod basics;
mod elections;
mod faults;
mod figures;
mod fixture;
mod inspection;
mod leases;
mod limits;
mod outages;
mod renewing;
mod security;
mod shared;
mod shared_faults;
mod shared_queue;
mod stale;
mod ttls;
mod waiting;
mod watcher;
mod watching;

use std::process::ExitCode;

use futures_util::future::LocalBoxFuture;
use leasehold_testkit::{
    etcd::{self, Version},
    extent, proxy,
};
use libtest_mimic::{Arguments, Trial};

/// One case: a fact, said as a name.
pub(crate) struct Case {
    name: &'static str,
    run: fn(Version) -> LocalBoxFuture<'static, ()>,
    /// Measures, and is run only if asked for.
    measures: bool,
}

/// Makes cases of async functions that take a version.
#[macro_export]
macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        vec![$($crate::Case {
            name: stringify!($name),
            run: |version| Box::pin($name(version)),
            measures: false,
        }),*]
    };
}

/// Cases on what a version of etcd may do in another way: leases, watches, quotas, outages.
fn of_etcd() -> Vec<Case> {
    let mut cases = ttls::cases();
    cases.extend(faults::cases());
    cases.extend(leases::cases());
    cases.extend(renewing::cases());
    cases.extend(stale::cases());
    cases.extend(limits::cases());
    cases.extend(shared_faults::cases());
    cases.extend(watching::cases());
    cases
}

/// Cases on what the backend makes of transactions, which do not differ.
fn of_this_backend() -> Vec<Case> {
    let mut cases = basics::cases();
    cases.extend(waiting::cases());
    cases.extend(shared::cases());
    cases.extend(shared_queue::cases());
    cases.extend(inspection::cases());
    cases.extend(figures::cases());
    cases
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Each case mostly waits for its servers.
    arguments.test_threads.get_or_insert(4);
    let mut trials = Vec::new();
    if let Some(why) = extent::left_out() {
        eprintln!("ignored: elections, outages, security: {why}");
    }
    for version in [Version::V34, Version::V36] {
        let ignored = match version.left_out() {
            Some(why) => Some(why.to_owned()),
            None if arguments.list => None,
            None => version.program().err(),
        };
        if let Some(why) = &ignored {
            eprintln!("ignored: {}: {why}", version.name());
        }
        let long = elections::cases()
            .into_iter()
            .chain(outages::cases())
            .chain(security::cases())
            .map(|case| (case, extent::left_out().is_some()));
        let cases = of_etcd()
            .into_iter()
            .chain(if version == Version::V34 { of_this_backend() } else { Vec::new() })
            .map(|case| {
                let measures = case.measures;
                (case, measures)
            })
            .chain(long);
        for (case, left_out) in cases {
            let name = format!("{}::{}", version.name(), case.name);
            let trial = Trial::test(name, move || {
                let runtime = tokio::runtime::Builder::new_multi_thread()
                    .worker_threads(2)
                    .enable_all()
                    .build()?;
                runtime.block_on((case.run)(version));
                Ok(())
            });
            trials.push(trial.with_ignored_flag(left_out || ignored.is_some()));
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
