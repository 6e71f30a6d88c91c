//! The conformance suite against one of our own stores, as a test binary.

use std::path::{Path, PathBuf};

use leasehold_conformance::{Component, Options, Outcome, Suite};
use libtest_mimic::Arguments;

/// The component YAML that users copy is the test's input.
pub fn component(store: &str) -> Component {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("components/{store}.yaml"));
    Component::read(&file).unwrap()
}

/// Runs every case on `socket`, the two-process ones with `second_socket`, and
/// ends the process. A case that is ignored fails the run: our stores declare
/// everything.
pub fn run(component: Component, socket: PathBuf, second_socket: Option<PathBuf>) -> bool {
    let options = Options { second_socket, ..Options::new(socket, component) };
    let suite = Suite::connect(&options).unwrap();
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(options.threads);
    let conclusion = libtest_mimic::run(&arguments, suite.trials());
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
