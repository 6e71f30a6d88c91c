//! A run of the suite against one store.

use std::{
    collections::{BTreeSet, VecDeque},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context as _;
use libtest_mimic::Trial;
use parking_lot::Mutex;
use tokio::{runtime::Runtime, sync::RwLock};
use tonic::metadata::{Ascii, MetadataValue};
use uuid::Uuid;

use crate::{
    bound::BoundCase,
    case::{CaseInfo, Demand},
    cases::{self, catalogue},
    component::Component,
    connection::{Connection, Instance},
    expect::Expect as _,
    feature::Feature,
    junit::to_junit,
    lacks::Lacks,
    outcome::{Outcome, Recorder},
    probe::probe,
    restart::Restart,
    stop::Stop,
    store::{Scope, Store},
    subject::Subject,
    world::World,
};

/// The options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The store's Unix socket.
    pub socket: PathBuf,
    /// The socket of a second process on the same backend, if there is one.
    pub second_socket: Option<PathBuf>,
    /// How to restart the store, if it can be.
    pub restart: Option<Restart>,
    /// The component whose properties Init gets.
    pub component: Component,
    /// The instance to use (`x-component-instance`); the component's name
    /// when `None`.
    pub instance: Option<String>,
    /// How many cases [`run_collect`] runs at the same time; at least one.
    pub threads: usize,
    /// Run these cases only; all that apply when `None`.
    pub only: Option<BTreeSet<String>>,
}

impl Options {
    /// Every case, eight threads, no second process, no restart, the component's own name.
    #[must_use]
    pub fn new(socket: impl Into<PathBuf>, component: Component) -> Self {
        let socket = socket.into();
        Self {
            socket,
            second_socket: None,
            restart: None,
            component,
            instance: None,
            threads: 8,
            only: None,
        }
    }
}

/// Fails if nobody listens at the socket, with a clearer message than gRPC's.
fn reach(socket: &Path) -> anyhow::Result<()> {
    UnixStream::connect(socket).map(drop).with_context(|| {
        let socket = socket.display();
        format!(
            "nothing listens at {socket}; start the store, or name its socket with --socket"
        )
    })
}

/// The suite, connected to a store. It owns a runtime, so make, use and drop
/// it outside asynchronous code.
pub struct Suite {
    runtime: Arc<Runtime>,
    subject: Arc<Subject>,
    recorder: Recorder,
    only: Option<BTreeSet<String>>,
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

        for socket in std::iter::once(&options.socket).chain(&options.second_socket) {
            reach(socket)?;
        }
        let connection = Connection::new(&options.socket);
        let init = |connection: &Connection| {
            let name = Some(instance.clone());
            let instance = Instance { connection: connection.clone(), name };
            let store = Store::new(instance, Arc::default());
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
        let lacks = runtime.block_on(what_it_lacks(&connection, &instance, &run));
        let subject = Arc::new(Subject {
            socket: options.socket.clone(),
            second_socket: options.second_socket.clone(),
            restart: options.restart.clone(),
            stop: Stop::new(&options.socket),
            connection,
            instance_name,
            instance,
            properties,
            features: declared.iter().filter_map(|name| Feature::from_name(name)).collect(),
            declared,
            lacks,
            run,
            running: RwLock::new(()),
        });
        Ok(Self {
            runtime: Arc::new(runtime),
            subject,
            recorder: Recorder::default(),
            only: options.only.clone(),
        })
    }

    /// The features that the store declares, of those that the suite knows.
    #[must_use]
    pub fn features(&self) -> &BTreeSet<Feature> {
        &self.subject.features
    }

    /// Collects the reports of the cases that [`Self::trials`] returns.
    #[must_use]
    pub fn recorder(&self) -> Recorder {
        self.recorder.clone()
    }

    /// Why the run ended before its last case; `None` if it did not.
    #[must_use]
    pub fn stopped(&self) -> Option<String> {
        self.subject.stop.reason()
    }

    /// The cases of this run, for `libtest_mimic::run`. A trial's kind is the case's
    /// demand.
    #[must_use]
    pub fn trials(&self) -> Vec<Trial> {
        self.bound_cases().into_iter().map(|(_, case)| case.into_trial()).collect()
    }

    /// The run so far as a JUnit document, including the cases that were left out.
    ///
    /// # Errors
    /// When the XML cannot be written.
    pub fn junit(&self) -> anyhow::Result<String> {
        let reports = self.recorder.reports();
        let was_run = |case: &CaseInfo| reports.iter().any(|report| report.case == *case);
        let left_out = |case: CaseInfo| {
            let why = self.left_out(&case);
            (case, why.unwrap_or_else(|| "not chosen for this run".to_owned()))
        };
        let left_out: Vec<_> =
            catalogue().into_iter().filter(|case| !was_run(case)).map(left_out).collect();
        let socket = |socket: &PathBuf| socket.display().to_string();
        let subject = &self.subject;
        let properties = [
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
            ("features", subject.declared.join(",")),
            ("lacks", subject.lacks.to_string()),
            ("instance", subject.instance_name.clone()),
            ("socket", socket(&subject.socket)),
            ("second-socket", subject.second_socket.as_ref().map_or_else(String::new, socket)),
        ];
        to_junit(&reports, &left_out, &properties)
    }

    /// Why the case does not apply; `None` if it does.
    fn left_out(&self, case: &CaseInfo) -> Option<String> {
        match case.demand {
            Demand::Core | Demand::Features(_) => None,
            Demand::Without(feature) => self
                .subject
                .features
                .contains(&feature)
                .then(|| format!("the store declares {feature}")),
            Demand::TwoProcesses(_) => self
                .subject
                .second_socket
                .is_none()
                .then(|| "no second socket was given".to_owned()),
            Demand::Restart(_) => {
                self.subject.restart.is_none().then(|| "no restart was given".to_owned())
            }
        }
    }

    /// The cases that apply, with their index in the catalogue. Those that run alone come
    /// last, so that the others run at the same time.
    fn bound_cases(&self) -> Vec<(usize, BoundCase)> {
        let mut cases: Vec<_> = cases::all().into_iter().enumerate().collect();
        cases.retain(|(_, case)| self.left_out(&case.info).is_none());
        if let Some(only) = &self.only {
            cases.retain(|(_, case)| only.contains(&case.info.name));
        }
        cases.sort_by_key(|(_, case)| case.alone);
        let bind = |(index, case)| {
            let world = World::new(Arc::clone(&self.subject), index);
            let (runtime, recorder) = (Arc::clone(&self.runtime), self.recorder.clone());
            (index, BoundCase { case, world, runtime, recorder })
        };
        cases.into_iter().map(bind).collect()
    }
}

/// Finds out what the store lacks, and leaves nothing held.
async fn what_it_lacks(
    connection: &Connection,
    instance: &MetadataValue<Ascii>,
    run: &str,
) -> Lacks {
    let scope = Arc::new(Scope::default());
    let on = |name| {
        let instance = Instance { connection: connection.clone(), name: Some(name) };
        Store::new(instance, Arc::clone(&scope))
    };
    let Ok(stranger) = format!("{run}-stranger").parse() else { return Lacks::default() };
    let lacks = probe(&on(instance.clone()), &on(stranger), &format!("{run}-probe")).await;
    scope.clean_up(false).await;
    lacks
}

/// Runs every case that applies and returns each outcome, in the order of the catalogue.
///
/// # Errors
/// As [`Suite::connect`].
pub fn run_collect(options: &Options) -> anyhow::Result<Vec<(String, Outcome)>> {
    let suite = Suite::connect(options)?;
    let queue = Mutex::new(VecDeque::from(suite.bound_cases()));
    let done = Mutex::new(Vec::new());
    let next = || queue.lock().pop_front();
    std::thread::scope(|scope| {
        for _ in 0..options.threads.max(1) {
            scope.spawn(|| {
                while let Some((index, case)) = next() {
                    let name = case.case.info.name.clone();
                    let outcome = case.run();
                    let mut done = done.lock();
                    done.push((index, name, outcome));
                }
            });
        }
    });
    let mut done = done.into_inner();
    done.sort_by_key(|(index, ..)| *index);
    Ok(done.into_iter().map(|(_, name, outcome)| (name, outcome)).collect())
}
