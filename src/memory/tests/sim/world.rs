//! One run: a server, processes, clients and faults, all from one seed.

use std::{
    sync::{Arc, Mutex, atomic::AtomicU32},
    time::Duration,
};

use fastrand::Rng;
use leasehold_lock::{
    Backend, Clock, Context, Release, ReleaseOf, ResourceId, Settings, Store,
};
use leasehold_memory::Memory;
use tokio::{
    runtime::Handle,
    task::JoinSet,
    time::{advance, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    check::{self, End},
    client::Client,
    history::{Event, History, What},
    link::Link,
    link_faults::LinkFaults,
    server::Server,
    store::ModelStore,
};

/// The shape of a run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub on_memory: bool,
    pub processes: u8,
    pub clients: u8,
    pub resources: u8,
    /// The number of flows of a client.
    pub flows: u32,
    pub ttl_ms_min: u64,
    pub ttl_ms_max: u64,
    pub wait_ms_max: u64,
    /// How many locks are shared.
    pub shared_per_mille: u32,
    pub force_per_mille: u32,
    pub faults_per_mille: u32,
    pub delay_ms_max: u64,
    /// Whether processes are stopped and killed, the server restarts, and locks
    /// are deleted.
    pub disruptions: bool,
}

/// The result of a run.
pub struct Run {
    pub plan: Plan,
    pub events: Vec<Event>,
    pub violations: Vec<String>,
}

/// One leasehold process.
pub struct Process {
    pub number: u8,
    pub store: Store,
    pub killed: CancellationToken,
    link: Arc<Link>,
}

/// The processes that run now.
pub struct Processes {
    running: Mutex<Vec<Arc<Process>>>,
}

impl Processes {
    pub fn any(&self, rng: &mut Rng) -> Arc<Process> {
        let running = self.running.lock().unwrap();
        Arc::clone(&running[rng.usize(..running.len())])
    }
}

impl Plan {
    fn draw(rng: &mut Rng) -> Self {
        let any = |rng: &mut Rng, of: &[u64]| of[rng.usize(..of.len())];
        let (ttl_ms_min, ttl_ms_max) = match rng.u8(..3) {
            0 => (100, 600),
            1 => (500, 3_000),
            // So long that a leftover does not expire during the run.
            _ => (600_000, 900_000),
        };
        Self {
            on_memory: rng.bool(),
            processes: rng.u8(1..=3),
            clients: rng.u8(2..=6),
            resources: rng.u8(1..=2),
            flows: rng.u32(3..=8),
            ttl_ms_min,
            ttl_ms_max,
            wait_ms_max: any(rng, &[50, 500, 3_000, 12_000]),
            shared_per_mille: u32::try_from(any(rng, &[0, 500, 800])).unwrap(),
            force_per_mille: u32::try_from(any(rng, &[0, 0, 50, 150])).unwrap(),
            faults_per_mille: u32::try_from(any(rng, &[0, 50, 150, 300])).unwrap(),
            delay_ms_max: any(rng, &[0, 1, 5, 40]),
            disruptions: rng.u8(..3) == 0,
        }
    }
}

/// Runs a seed from beginning to end.
pub fn run(seed: u64) -> Run {
    // The randomness of the code under test: jitter.
    fastrand::seed(seed);
    let mut rng = Rng::with_seed(seed);
    let plan = Plan::draw(&mut rng);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let (events, end) = runtime.block_on(live(plan, rng));
    let violations = check::violations(&events, &end);
    Run { plan, events, violations }
}

async fn live(plan: Plan, mut rng: Rng) -> (Vec<Event>, End) {
    let history = History::begin();
    let backend: Arc<dyn Backend> =
        if plan.on_memory { Arc::new(memory(rng.fork())) } else { Arc::new(ModelStore::new()) };
    let idle = Handle::current().metrics().num_alive_tasks();
    let server = Server::new(backend, history.clone());
    let mut world =
        World { plan, server, rng: rng.fork(), incarnations: 0, retired: JoinSet::new() };
    let first = (0..plan.processes).map(|number| world.process(number)).collect();
    let processes = Arc::new(Processes { running: Mutex::new(first) });
    let ops = Arc::<AtomicU32>::default();
    let mut clients = JoinSet::new();
    for number in 1..=plan.clients {
        let client = Client {
            rng: rng.fork(),
            number,
            plan,
            server: Arc::clone(&world.server),
            processes: Arc::clone(&processes),
            ops: Arc::clone(&ops),
            stale: Vec::new(),
        };
        clients.spawn(client.run());
    }
    loop {
        tokio::select! {
            biased;
            joined = clients.join_next() => match joined {
                Some(ended) => ended.unwrap(),
                None => break,
            },
            () = world.next_disruption() => world.disrupt(&processes).await,
        }
    }
    let end = world.end(&processes, idle).await;
    (history.take(), end)
}

/// One table, so that grants that end at the same instant end in a fixed order;
/// and a clock that stands still and jumps both ways.
pub fn memory(rng: Rng) -> Memory {
    let rng = Mutex::new(rng);
    let clock = Clock::from_fn(move || {
        let mut rng = rng.lock().unwrap();
        if rng.bool() { 1_000_000 } else { rng.u64(1..4) * rng.u64(1..3_600_000_000) }
    });
    Memory::new(&Context::new(Settings::default(), clock))
}

struct World {
    plan: Plan,
    server: Arc<Server>,
    rng: Rng,
    incarnations: u32,
    retired: JoinSet<()>,
}

impl World {
    fn process(&mut self, number: u8) -> Arc<Process> {
        self.incarnations += 1;
        let plan = &self.plan;
        let faults = LinkFaults::new(self.rng.fork(), plan.faults_per_mille, plan.delay_ms_max);
        let server = Arc::clone(&self.server);
        let link = Arc::new(Link::new(server, number, self.incarnations, faults));
        let store = Store::new(Arc::clone(&link) as Arc<dyn Backend>, Settings::default());
        Arc::new(Process { number, store, killed: CancellationToken::new(), link })
    }

    async fn next_disruption(&mut self) {
        if !self.plan.disruptions {
            std::future::pending::<()>().await;
        }
        sleep(Duration::from_millis(self.rng.u64(100..6_000))).await;
    }

    async fn disrupt(&mut self, processes: &Processes) {
        let history = self.server.history.clone();
        match self.rng.u8(..5) {
            4 => {
                // Neither processes nor the server run meanwhile.
                let stall = Duration::from_millis(self.rng.u64(1..3_000));
                history.note(What::Stalls { us: stall.as_micros().try_into().unwrap() });
                advance(stall).await;
            }
            0 => {
                history.note(What::Fault { process: u8::MAX, fault: "server restarts" });
                self.server.restart();
            }
            1 => {
                let resource = format!("r{}", self.rng.u8(..self.plan.resources));
                let resource = ResourceId::new(&resource).unwrap();
                self.server.operate(&Release::new(resource, ReleaseOf::Anyone));
            }
            killed_or_drained => {
                let mut running = processes.running.lock().unwrap();
                let at = self.rng.usize(..running.len());
                let number = running[at].number;
                let old = std::mem::replace(&mut running[at], self.process(number));
                drop(running);
                if killed_or_drained == 2 {
                    history.note(What::Killed { process: number });
                    old.killed.cancel();
                    old.link.kill();
                } else {
                    history.note(What::Drained { process: number });
                    old.store.drain();
                    self.retired.spawn(async move { old.store.clone().retire().await });
                }
            }
        }
    }

    /// Ends the faults and all processes: then nothing may be left.
    async fn end(mut self, processes: &Processes, idle: usize) -> End {
        let running = std::mem::take(&mut *processes.running.lock().unwrap());
        for process in &running {
            process.link.clear();
        }
        for process in running {
            self.retired.spawn(async move { process.store.clone().retire().await });
        }
        let settled = async { while self.retired.join_next().await.is_some() {} };
        let retired = timeout(Duration::from_secs(300), settled).await.is_ok();
        let (live, _) = self.server.left();
        // Waits of killed processes are skipped, and silent faults are noticed.
        sleep(Duration::from_secs(180)).await;
        let (_, waiting) = self.server.left();
        let tasks = Handle::current().metrics().num_alive_tasks() - idle;
        End { retired, live, waiting, tasks }
    }
}
