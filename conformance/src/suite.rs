//! The suite against one store.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    panic::AssertUnwindSafe,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context as _;
use futures_util::FutureExt as _;
use libtest_mimic::{Completion, Trial};
use tokio::{runtime::Runtime, time::Instant};
use tonic::metadata::{Ascii, MetadataValue};
use uuid::Uuid;

use crate::{
    case::{Absent, Case, Demand},
    cases,
    component::Component,
    connection::Connection,
    expect::Expect as _,
    feature::Feature,
    outcome::{Outcome, Recorder, Report},
    store::Store,
    world::World,
};

/// No case needs this long; one that takes longer has failed.
const CASE_MAX: Duration = Duration::from_secs(120);

/// What the suite is to be run against.
#[derive(Clone, Debug)]
pub struct Options {
    /// The store's Unix socket.
    pub socket: PathBuf,
    /// The socket of a second process on the same backend, if there is one.
    pub second_socket: Option<PathBuf>,
    /// The component whose properties Init gets.
    pub component: Component,
    /// The instance to use (`x-component-instance`); the component's name
    /// when `None`.
    pub instance: Option<String>,
    /// How many cases [`run_collect`] runs at the same time; at least one.
    pub threads: usize,
}

impl Options {
    /// Eight threads, no second process, the component's own name.
    #[must_use]
    pub fn new(socket: impl Into<PathBuf>, component: Component) -> Self {
        let socket = socket.into();
        Self { socket, second_socket: None, component, instance: None, threads: 8 }
    }
}

/// The store under test, as all cases share it.
pub(crate) struct Subject {
    pub(crate) socket: PathBuf,
    pub(crate) second_socket: Option<PathBuf>,
    pub(crate) connection: Connection,
    pub(crate) instance_name: String,
    pub(crate) instance: MetadataValue<Ascii>,
    pub(crate) properties: HashMap<String, String>,
    pub(crate) features: BTreeSet<Feature>,
    /// The prefix of every name that this run makes.
    pub(crate) run: String,
}

/// The suite, connected to a store. It owns a runtime, so make, use and drop
/// it outside asynchronous code.
pub struct Suite {
    runtime: Arc<Runtime>,
    subject: Arc<Subject>,
    recorder: Recorder,
}

impl Suite {
    /// Initialises the instance on each socket, and reads what the store
    /// declares.
    ///
    /// # Errors
    /// When a socket cannot be reached, or refuses Init or Features.
    pub fn connect(options: &Options) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("conformance")
            .enable_all()
            .build()?;
        let instance_name =
            options.instance.clone().unwrap_or_else(|| options.component.name.clone());
        let instance: MetadataValue<Ascii> =
            instance_name.parse().context("the instance's name must be ASCII")?;
        let properties = options.component.properties.clone();

        let connection = Connection::new(&options.socket);
        let init = |connection: &Connection| {
            let instance = Some(instance.clone());
            let store = Store::new(connection.clone(), instance, Arc::default());
            let properties = properties.clone();
            async move {
                store.init(properties).await.or_fail("Init failed")?;
                store.features().await.or_fail("Features failed")
            }
        };
        let declared = runtime
            .block_on(init(&connection))
            .with_context(|| format!("at {}", options.socket.display()))?;
        if let Some(second) = &options.second_socket {
            runtime
                .block_on(init(&Connection::new(second)))
                .with_context(|| format!("at {}", second.display()))?;
        }

        let run = format!("conformance-{:08x}", Uuid::new_v4().as_fields().0);
        let subject = Arc::new(Subject {
            socket: options.socket.clone(),
            second_socket: options.second_socket.clone(),
            connection,
            instance_name,
            instance,
            properties,
            features: declared.iter().filter_map(|name| Feature::from_name(name)).collect(),
            run,
        });
        Ok(Self { runtime: Arc::new(runtime), subject, recorder: Recorder::default() })
    }

    /// What the store declares, as far as the suite knows it.
    #[must_use]
    pub fn features(&self) -> &BTreeSet<Feature> {
        &self.subject.features
    }

    /// Where the cases of [`Self::trials`] report to.
    #[must_use]
    pub fn recorder(&self) -> Recorder {
        self.recorder.clone()
    }

    /// The cases that this run has, for `libtest_mimic::run`. A trial's kind
    /// is what the case demands.
    #[must_use]
    pub fn trials(&self) -> Vec<Trial> {
        self.bound_cases().map(BoundCase::into_trial).collect()
    }

    fn bound_cases(&self) -> impl Iterator<Item = BoundCase> + '_ {
        let applies = |case: &Case| match case.info.demand {
            Demand::Core | Demand::Features(_) => true,
            Demand::Without(feature) => !self.subject.features.contains(&feature),
            Demand::TwoProcesses(_) => self.subject.second_socket.is_some(),
        };
        cases::all().into_iter().enumerate().filter(move |(_, case)| applies(case)).map(
            |(index, case)| BoundCase {
                world: World::new(Arc::clone(&self.subject), index),
                runtime: Arc::clone(&self.runtime),
                recorder: self.recorder.clone(),
                case,
            },
        )
    }
}

/// Runs every case that applies and returns what came of each, in the order
/// of the catalogue.
///
/// # Errors
/// As [`Suite::connect`].
pub fn run_collect(options: &Options) -> anyhow::Result<Vec<(String, Outcome)>> {
    let suite = Suite::connect(options)?;
    let numbered: VecDeque<_> = suite.bound_cases().enumerate().collect();
    let queue = Mutex::new(numbered);
    let done = Mutex::new(Vec::new());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    std::thread::scope(|scope| {
        for _ in 0..options.threads.max(1) {
            scope.spawn(|| {
                while let Some((index, case)) = next() {
                    let name = case.case.info.name.clone();
                    let outcome = case.run();
                    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                    done.push((index, name, outcome));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(index, ..)| *index);
    Ok(done.into_iter().map(|(_, name, outcome)| (name, outcome)).collect())
}

/// A case with all that it needs to run.
struct BoundCase {
    case: Case,
    world: World,
    runtime: Arc<Runtime>,
    recorder: Recorder,
}

impl BoundCase {
    fn into_trial(self) -> Trial {
        let info = self.case.info.clone();
        Trial::ignorable_test(info.name, move || match self.run() {
            Outcome::Passed => Ok(Completion::Completed),
            Outcome::Ignored(why) => Ok(Completion::ignored_with(why)),
            Outcome::Failed(how) => Err(how.into()),
        })
        .with_kind(info.demand.to_string())
    }

    fn run(self) -> Outcome {
        let Self { case, world, runtime, recorder } = self;
        let began = Instant::now();
        let outcome = match missing(&case.info.demand, &world) {
            Some(features) => {
                Outcome::Ignored(format!("the store does not declare {features}"))
            }
            None => runtime.block_on(async {
                let body = AssertUnwindSafe((case.body)(world.clone())).catch_unwind();
                let outcome = match tokio::time::timeout(CASE_MAX, body).await {
                    Ok(Ok(Ok(()))) => Outcome::Passed,
                    Ok(Ok(Err(error))) => match error.downcast_ref::<Absent>() {
                        Some(absent) => Outcome::Ignored(absent.to_string()),
                        None => Outcome::Failed(format!("{error:#}")),
                    },
                    Ok(Err(_)) => Outcome::Failed("the case panicked: its own bug".to_owned()),
                    Err(_) => Outcome::Failed(format!("not done within {CASE_MAX:?}")),
                };
                world.clean_up().await;
                outcome
            }),
        };
        let took = began.elapsed();
        recorder.record(Report { case: case.info, outcome: outcome.clone(), took });
        outcome
    }
}

/// The features that the case demands and the store does not declare.
fn missing(demand: &Demand, world: &World) -> Option<String> {
    let demanded = match demand {
        Demand::Core | Demand::Without(_) => return None,
        Demand::Features(features) | Demand::TwoProcesses(features) => features,
    };
    let missing: Vec<_> =
        demanded.iter().filter(|f| !world.declares(**f)).map(|f| f.name()).collect();
    (!missing.is_empty()).then(|| missing.join(", "))
}
