//! The etcd backend on real servers, of every version it is made for.
//!
//! Each case is run on each version. One that is left out, or whose etcd is missing, is
//! printed as ignored.

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

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for version in [Version::V34, Version::V36] {
        let ignored = match version.left_out() {
            Some(why) => Some(why.to_owned()),
            None if arguments.list => None,
            None => version.program().err(),
        };
        if let Some(why) = &ignored {
            eprintln!("{} is ignored: {why}", version.name());
        }
        let long = elections::cases()
            .into_iter()
            .chain(outages::cases())
            .chain(security::cases())
            .map(|case| (case, extent::left_out().is_some()));
        let cases = basics::cases()
            .into_iter()
            .chain(ttls::cases())
            .chain(waiting::cases())
            .chain(faults::cases())
            .chain(leases::cases())
            .chain(renewing::cases())
            .chain(stale::cases())
            .chain(limits::cases())
            .chain(shared::cases())
            .chain(shared_queue::cases())
            .chain(shared_faults::cases())
            .chain(inspection::cases())
            .chain(watching::cases())
            .chain(figures::cases())
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
