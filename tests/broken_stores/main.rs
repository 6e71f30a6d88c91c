//! Stores that are broken on purpose must fail the conformance suite, each by
//! the case that names its defect.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, reason = "a test")]

mod defect;
mod inspect;
mod lacking;
mod neighbours;

use std::{collections::BTreeMap, path::Path, process::ExitCode, sync::Arc};

use defect::{Broken, Defect};
use lacking::Lack;
use leasehold_component::{Component, Instances, OpenInstance, Socket, SocketMode};
use leasehold_conformance::{Component as Manifest, Options, Outcome, catalogue, run_collect};
use leasehold_lock::{Clock, Context, Settings, Store};
use leasehold_memory::{self as memory, Memory};
use libtest_mimic::{Arguments, Failed, Trial};

/// Each defect, and the case that must fail for it.
const CAUGHT: &[(Defect, &str)] = &[
    (Defect::WrongOwnerUnlocks, "unlock: with another's lock ID it leaves the grant alone"),
    (Defect::TokenRepeats, "fencing: tokens rise over a hundred grants"),
    (Defect::RenewalRecreates, "renew: of an expired grant it does not bring it back"),
    (Defect::RenewalIsIgnored, "renew: a renewal starts the TTL again"),
    (Defect::TtlIsCutShort, "ttl: a grant lives at least its granted TTL"),
    (
        Defect::TimerOutlivesUnlock,
        "unlock: the end of the unlocked grant's TTL leaves another lock ID's grant alone",
    ),
    (Defect::UnlockIsIgnored, "unlock: it frees the resource at once"),
    (Defect::ForceIsIgnored, "force: force ends a grant without its lock ID"),
    (Defect::LastComeFirstServed, "fair: six waiters are served in the order of their coming"),
    (Defect::AWaiterIsSkipped, "wait: all of ten waiters are served in the end"),
    (Defect::FailedTryLeavesLitter, "try: a refused try is never granted later"),
    (Defect::CancelLeaks, "cancel: a cancelled wait is never granted"),
    (Defect::TryOvertakesWaiters, "fair: a TryLock does not overtake a waiter"),
    (Defect::ReplayIsRefused, "replay: a repeated TryLock returns the live grant"),
    (
        Defect::WrongErrorCode,
        "try: a held resource is refused with ABORTED and RESOURCE_LOCKED",
    ),
    (Defect::WrongHeld, "unlock: of a free resource it is LOCK_NOT_FOUND with held false"),
    (Defect::LockIdRepeats, "lock id: the store's lock IDs are distinct"),
    (
        Defect::NameIsTakenByOneBelow,
        "names: holding a name leaves shorter names that it begins with free",
    ),
    (
        Defect::NameIsTakenByOneAbove,
        "names: holding a name leaves longer names that begin with it free",
    ),
    (
        Defect::SlashesAreMerged,
        "names: names that differ in their slashes are different resources",
    ),
    (
        Defect::TriesRefuseEachOther,
        "try: after an Unlock, one of those who try is granted though other tries are in \
         flight",
    ),
    (Defect::AReaderRenewsAll, "shared: a renewal lengthens one of several shared grants"),
    (
        Defect::ReadersStarveAWriter,
        "shared: a reader that comes later does not overtake a waiting writer",
    ),
    (Defect::ReadersEnterOneByOne, "shared: readers that wait for each other are all let in"),
    (Defect::AReaderBesideAWriter, "shared: a reader is refused while a writer holds"),
    (Defect::AnUpgradeIsLetIn, "shared: a reader's lock ID does not make it a writer"),
    (Defect::GetLockShowsALockId, "inspection: no answer has a lock ID or a request ID"),
    (
        Defect::AListSkipsBetweenPages,
        "inspection: the pages of a list together have every lock",
    ),
    (Defect::ASuccessorIsEnded, "inspection: EndLocks of a grant ID never ends a successor"),
    (
        Defect::ARefusalShowsAnotherGrant,
        "inspection: a refused try is shown the grant that GetLock returns",
    ),
    (Defect::AWatchMissesChanges, "watch: a grant and its release are reported"),
];

fn main() -> ExitCode {
    let trial = |(defect, case): &(Defect, &'static str)| {
        let (defect, case) = (*defect, *case);
        let name = format!("{defect:?} is caught by {case:?}");
        Trial::test(name, move || match outcome(defect, &[case])?.remove(case) {
            Some(Outcome::Failed(_)) => Ok(()),
            other => Err(format!("the broken store was not caught: {other:?}").into()),
        })
    };
    let mut trials: Vec<_> = CAUGHT.iter().map(trial).collect();
    trials.push(Trial::test("the wrapper without a defect passes all of these cases", || {
        let cases: Vec<_> = CAUGHT.iter().map(|(_, case)| *case).collect();
        let outcomes = outcome(Defect::None, &cases)?;
        let failed: Vec<_> =
            outcomes.iter().filter(|(_, outcome)| **outcome != Outcome::Passed).collect();
        if failed.is_empty() { Ok(()) } else { Err(format!("{failed:#?}").into()) }
    }));
    trials.push(Trial::test("a store without error details fails one case for it", || {
        let outcomes = outcomes_without(Lack::Details)?;
        let case = "errors: a refusal has an ErrorInfo with its reason and the domain dapr.io";
        fails_only(&outcomes, case)
    }));
    trials.push(Trial::test("a store without RenewLock fails one case for it", || {
        let outcomes = outcomes_without(Lack::RenewLock)?;
        let case = "renew: RenewLock is implemented";
        fails_only(&outcomes, case)?;
        let not_left_out: Vec<_> = outcomes
            .iter()
            .filter(|(name, _)| name.starts_with("renew: ") && *name != case)
            .filter(|(_, outcome)| {
                !matches!(outcome, Outcome::Ignored(why) if why.contains("RenewLock"))
            })
            .collect();
        if not_left_out.is_empty() { Ok(()) } else { Err(format!("{not_left_out:#?}").into()) }
    }));
    let mut arguments = Arguments::from_args();
    // Each case mostly waits for a TTL to end.
    arguments.test_threads.get_or_insert(8);
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// The themes that a missing answer affects, without those that mostly wait.
const LACKING_THEMES: [&str; 12] = [
    "init",
    "errors",
    "try",
    "names",
    "lock id",
    "ttl",
    "renew",
    "unlock",
    "invalid",
    "force",
    "replay",
    "linearizable",
];

/// The outcomes of the cases on a store that lacks this and has no other defect.
fn outcomes_without(lack: Lack) -> Result<BTreeMap<String, Outcome>, Failed> {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (inner, path) = (folder.path().join("inner.sock"), folder.path().join("front.sock"));
    let open: OpenInstance =
        Arc::new(|_, metadata, _| Box::pin(memory::KIND.open(metadata, Clock::system(), None)));
    let component = runtime.block_on(serve(&inner, open));
    let front = runtime.block_on(lacking::serve(&path, &inner, lack));
    let is_chosen = |name: &str| {
        name.split_once(": ").is_some_and(|(theme, _)| LACKING_THEMES.contains(&theme))
    };
    let names = catalogue().into_iter().map(|case| case.name);
    let mut options = options(&path);
    options.only = Some(names.filter(|name| is_chosen(name)).collect());
    let outcomes = run_collect(&options).unwrap().into_iter().collect();
    front.abort();
    runtime.block_on(component.drain());
    Ok(outcomes)
}

fn fails_only(outcomes: &BTreeMap<String, Outcome>, case: &str) -> Result<(), Failed> {
    let is_failed = |outcome: &Outcome| matches!(outcome, Outcome::Failed(_));
    let failed: BTreeMap<_, _> =
        outcomes.iter().filter(|(_, outcome)| is_failed(outcome)).collect();
    let is_it = failed.len() == 1 && failed.keys().all(|name| *name == case);
    if is_it { Ok(()) } else { Err(format!("expected only {case:?}: {failed:#?}").into()) }
}

fn options(path: &Path) -> Options {
    let yaml = Path::new(env!("CARGO_MANIFEST_DIR")).join("../components/memory.yaml");
    Options::new(path, Manifest::read(&yaml).unwrap())
}

/// The outcomes of these cases on a store with this defect.
fn outcome(defect: Defect, cases: &[&str]) -> Result<BTreeMap<String, Outcome>, Failed> {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("broken.sock");
    let component = runtime.block_on(serve(&path, broken(defect)));
    let mut options = options(&path);
    options.only = Some(cases.iter().map(|case| (*case).to_owned()).collect());
    let outcomes: BTreeMap<_, _> = run_collect(&options).unwrap().into_iter().collect();
    runtime.block_on(component.drain());
    match cases.iter().find(|case| !outcomes.contains_key(**case)) {
        Some(unknown) => Err(format!("the suite has no case {unknown:?}").into()),
        None => Ok(outcomes),
    }
}

/// Opens memory with the defect, whatever the properties.
fn broken(defect: Defect) -> OpenInstance {
    Arc::new(move |_, _, _| {
        Box::pin(async move {
            let settings = Settings::default();
            let context = Context::new(settings.clone(), Clock::system());
            let broken = Broken::new(Memory::new(&context), defect);
            Ok(Store::new(Arc::new(broken), settings))
        })
    })
}

async fn serve(path: &Path, open: OpenInstance) -> Component {
    let socket = Socket::open(path, Some(SocketMode::default()), "--flag").await.unwrap();
    let instances = Instances::new(open, memory::KIND.features);
    Component::start(socket, Arc::new(instances), false).await.unwrap()
}
