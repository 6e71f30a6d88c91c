//! The conformance suite against one of our own stores, as a test binary.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use leasehold_conformance::{
    Component, Demand, Feature, Options, Outcome, Restart, Suite, catalogue, summary,
};
use leasehold_testkit::leasehold::Leasehold;
use libtest_mimic::Arguments;

/// The component YAML that users copy is the test's input.
pub fn component(store: &str) -> Component {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../components/{store}.yaml"));
    Component::read(&file).unwrap()
}

/// Runs every case on a process of leasehold, the two-process ones with `second_socket`.
/// An ignored case fails the run. `not_promised` names the features that the store does
/// not promise by design: their cases are left out, and that is printed.
pub fn run(
    component: Component,
    leasehold: Leasehold,
    store: &'static str,
    second_socket: Option<PathBuf>,
    not_promised: &[Feature],
) -> bool {
    let demands = |demand: &Demand| match demand {
        Demand::Features(features)
        | Demand::TwoProcesses(features)
        | Demand::Restart(features) => {
            features.iter().any(|feature| not_promised.contains(feature))
        }
        Demand::Core | Demand::Without(_) => false,
    };
    let (left_out, asked): (Vec<_>, Vec<_>) =
        catalogue().into_iter().partition(|case| demands(&case.demand));
    for case in left_out {
        println!("left out, not promised by this store: {}", case.name);
    }
    let only = Some(asked.into_iter().map(|case| case.name).collect());
    let socket = leasehold.socket(store);
    let leasehold = Arc::new(Mutex::new(leasehold));
    let restarted = Arc::clone(&leasehold);
    let restart = Some(Restart::new(move || {
        let mut leasehold = restarted.lock().unwrap();
        leasehold.process.kill();
        leasehold.process.start()?;
        leasehold.ready(store);
        Ok(())
    }));
    let options = Options { second_socket, restart, only, ..Options::new(socket, component) };
    let suite = Suite::connect(&options).unwrap();
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(options.threads);
    let conclusion = libtest_mimic::run(&arguments, suite.trials());
    eprint!("{}", summary(&suite.recorder().reports()));
    let ignored: Vec<_> = suite
        .recorder()
        .reports()
        .into_iter()
        .filter(|report| matches!(report.outcome, Outcome::Ignored(_)))
        .map(|report| report.case.name)
        .collect();
    if !ignored.is_empty() {
        eprintln!("our own store must not be excused from any case: {ignored:#?}");
    }
    !conclusion.has_failed() && ignored.is_empty()
}
