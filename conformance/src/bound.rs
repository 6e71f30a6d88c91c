//! A case that is ready to run.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::{FutureExt as _, future::BoxFuture};
use libtest_mimic::{Completion, Trial};
use tokio::{runtime::Runtime, time::Instant};

use crate::{
    case::{Case, Demand},
    lacks::Absent,
    outcome::{Outcome, Recorder, Report},
    words::Readable,
    world::World,
};

/// No case needs this long; one that takes longer has failed.
const CASE_MAX: Duration = Duration::from_secs(120);

/// A case with everything that it needs to run.
pub(crate) struct BoundCase {
    pub(crate) case: Case,
    pub(crate) world: World,
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) recorder: Recorder,
}

impl BoundCase {
    pub(crate) fn into_trial(self) -> Trial {
        let info = self.case.info.clone();
        Trial::ignorable_test(info.name, move || match self.run() {
            Outcome::Passed => Ok(Completion::Completed),
            Outcome::Ignored(why) => Ok(Completion::ignored_with(why)),
            Outcome::Failed(how) => Err(how.into()),
        })
        .with_kind(info.demand.to_string())
    }

    pub(crate) fn run(self) -> Outcome {
        let Self { case, world, runtime, recorder } = self;
        let missing = missing(&case.info.demand, &world)
            .map(|features| format!("the store does not declare {features}"));
        let (outcome, took) = match world.stop().reason().or(missing) {
            Some(why) => (Outcome::Ignored(why), Duration::ZERO),
            None => runtime.block_on(async {
                let running = world.running();
                let (_alone, _together);
                if case.alone {
                    _alone = running.write().await;
                } else {
                    _together = running.read().await;
                }
                let began = Instant::now();
                let outcome = outcome((case.body)(world.clone())).await;
                world.clean_up().await;
                let outcome = if world.missed_renewal() {
                    let why = "the case renews, and RenewLock is not implemented, which is \
                               reported by a case of its own";
                    Outcome::Ignored(why.to_owned())
                } else {
                    outcome
                };
                (outcome, began.elapsed())
            }),
        };
        if matches!(outcome, Outcome::Failed(_)) {
            world.stop().look_after(&case.info.name);
        }
        recorder.record(Report { case: case.info, outcome: outcome.clone(), took });
        outcome
    }
}

/// Runs the body of a case and turns whatever happens into an outcome.
async fn outcome(body: BoxFuture<'static, anyhow::Result<()>>) -> Outcome {
    match tokio::time::timeout(CASE_MAX, AssertUnwindSafe(body).catch_unwind()).await {
        Ok(Ok(Ok(()))) => Outcome::Passed,
        Ok(Ok(Err(error))) => match error.downcast_ref::<Absent>() {
            Some(absent) => Outcome::Ignored(absent.to_string()),
            None => Outcome::Failed(format!("{error:#}")),
        },
        Ok(Err(_)) => {
            Outcome::Failed("the case panicked, which is a bug in the suite".to_owned())
        }
        Err(_) => Outcome::Failed(format!("not done within {}", Readable(CASE_MAX))),
    }
}

/// The features that the case demands and the store does not declare.
fn missing(demand: &Demand, world: &World) -> Option<String> {
    let demanded = match demand {
        Demand::Core | Demand::Without(_) => return None,
        Demand::Features(features)
        | Demand::TwoProcesses(features)
        | Demand::Restart(features) => features,
    };
    let missing: Vec<_> =
        demanded.iter().filter(|f| !world.declares(**f)).map(|f| f.name()).collect();
    (!missing.is_empty()).then(|| missing.join(", "))
}
