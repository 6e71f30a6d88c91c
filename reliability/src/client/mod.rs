//! A client process: clients that use leasehold from a seed, and record every
//! call. The process's [`Role`] determines what they do.

mod caller;
mod connection;
mod crowd;
mod few;
mod foreign;
mod front;
mod keepers;
mod meeting;
mod modes;
mod names;
mod random;
mod sharing;
mod waiters;

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context;
use clap::ValueEnum;
use tokio::{
    io::AsyncReadExt,
    task::JoinSet,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

pub use caller::Caller;
pub(crate) use caller::to_instance;
pub use connection::{Process, process};
use modes::Readers;
use names::Names;
use random::RandomClient;

use crate::{
    clock::now_ns,
    history::{Acquisition, Log},
};

/// How long the clients of a process may take to end their last calls.
const LAST_CALLS_MAX: Duration = Duration::from_secs(25);
/// The prefix of resources that are locked for hours. They are unlocked by
/// force at the end of a run, because their holders may have been killed.
pub(crate) const LASTING: &str = "lasting/";

/// What the clients of a process do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub enum Role {
    /// All operations on locks, at random, with short TTLs.
    Random,
    /// They renew and unlock each other's grants at different leasehold
    /// processes, and hold grants to their safe deadline.
    Sharing,
    /// Like `Sharing`; they also lock many resources for hours and unlock them at once.
    Lasting,
    /// Each holds one lock for as long as it can, and renews it every third of
    /// its TTL.
    Keepers,
    /// One holds a lock, and the others wait for it with the same lock ID, briefly and
    /// often.
    Namesakes,
    /// They wait for up to 22 s, in queues that move slowly.
    Waiters,
    /// They wait in long queues, all of them at one leasehold process.
    Crowd,
    /// A few that try and wait for the crowd's resources, at any process.
    Visitors,
    /// They hold one of a few resources each.
    Few,
    /// They lock in Redis itself, with and against leasehold.
    Foreign,
    /// They lock through fronts, as clients of Redis.
    Front,
    /// Groups of readers that unlock only once all of a group hold, each with a writer
    /// that gives up waiting for them.
    Meeting,
}

impl Role {
    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Sharing => "sharing",
            Self::Lasting => "lasting",
            Self::Keepers => "keepers",
            Self::Namesakes => "namesakes",
            Self::Waiters => "waiters",
            Self::Crowd => "crowd",
            Self::Visitors => "visitors",
            Self::Few => "few",
            Self::Foreign => "foreign",
            Self::Front => "front",
            Self::Meeting => "meeting",
        }
    }
}

/// The settings of a client process.
#[derive(Clone, Debug, clap::Args)]
pub struct Settings {
    /// A leasehold process's socket; clients are distributed over them.
    #[arg(long = "socket", required = true)]
    pub sockets: Vec<PathBuf>,
    /// What its clients do.
    #[arg(long, default_value = "random")]
    pub role: Role,
    /// The number of this process in its run, never used twice.
    #[arg(long)]
    pub process: u32,
    /// How many clients it runs.
    #[arg(long)]
    pub clients: u32,
    /// The seed of its choices.
    #[arg(long)]
    pub seed: u64,
    /// Where it records.
    #[arg(long)]
    pub history: PathBuf,
    /// When the run began, on the monotonic clock: resources get new names at
    /// whole periods since.
    #[arg(long)]
    pub began_ns: u64,
    /// The prefix of every resource's name.
    #[arg(long, default_value = "")]
    pub names: String,
    /// How many resources are in use at a time, of each kind if there are kinds.
    #[arg(long, default_value_t = 8)]
    pub resources: u32,
    /// The longest pause between two calls of a client.
    #[arg(long, default_value_t = 20)]
    pub pause_ms_max: u64,
    /// The TTL that keepers ask for.
    #[arg(long, default_value_t = 6_000)]
    pub ttl_ms: u64,
    /// How long a wait of a crowd may last.
    #[arg(long, default_value_t = 5_000)]
    pub wait_ms: u64,
    /// How many of 100 acquisitions are shared.
    #[arg(long, default_value_t = 0)]
    pub readers: u32,
    /// The address of Redis for foreign clients.
    #[arg(long)]
    pub redis: Option<SocketAddr>,
    /// The address of a front; may be repeated.
    #[arg(long = "front")]
    pub fronts: Vec<String>,
}

/// The parameters of every client of a process.
#[derive(Clone)]
struct Client {
    caller: Caller,
    number: u32,
    readers: Readers,
    rng: fastrand::Rng,
    stop: CancellationToken,
}

impl Client {
    /// Waits until `then`, or until the run ends.
    async fn until(&self, then: Instant) {
        tokio::select! {
            () = sleep_until(then) => {}
            () = self.stop.cancelled() => {}
        }
    }

    /// Waits for this time, or until the run ends.
    async fn pause(&self, during: Duration) {
        self.until(Instant::now() + during).await;
    }

    /// Waits for a random time in the range, or until the run ends.
    async fn pause_ms(&mut self, range: std::ops::Range<u64>) {
        let ms = self.rng.u64(range);
        self.pause(Duration::from_millis(ms)).await;
    }

    fn goes_on(&self) -> bool {
        !self.stop.is_cancelled()
    }

    /// A request for a grant in a random mode.
    fn asks(&mut self, ttl_ms: u64) -> Acquisition {
        let mode = self.readers.draw(&mut self.rng);
        Acquisition { ttl_ms, mode, ..Acquisition::default() }
    }

    /// A caller of a random process.
    fn anywhere(&mut self) -> Caller {
        let process = self.rng.usize(..self.caller.processes());
        self.caller.at(process)
    }
}

/// Runs the clients until standard input ends, and then until each has ended
/// its last call.
pub async fn run(settings: Settings) -> anyhow::Result<()> {
    let log = Arc::new(Log::append(&settings.history)?);
    let ids = Caller::ids(settings.process);
    let stop = CancellationToken::new();
    let processes: Arc<[_]> = settings.sockets.iter().map(|socket| process(socket)).collect();
    let shared = sharing::Pool::default();
    let groups = meeting::Groups::new(settings.clients, settings.resources);
    let mut clients = JoinSet::new();
    for number in 0..settings.clients {
        let client = Client {
            caller: Caller::new(
                Arc::clone(&processes),
                Arc::clone(&log),
                Arc::clone(&ids),
                number,
            ),
            number,
            readers: Readers(settings.readers),
            rng: fastrand::Rng::with_seed(settings.seed ^ u64::from(number) << 32),
            stop: stop.clone(),
        };
        match settings.role {
            Role::Random => {
                let names =
                    Names::new(settings.names.clone(), settings.began_ns, settings.resources);
                let Client { caller, readers, rng, stop, .. } = client;
                let random =
                    RandomClient::new(caller, names, readers, rng, settings.pause_ms_max);
                clients.spawn(random.run(stop));
            }
            Role::Sharing | Role::Lasting => {
                clients.spawn(sharing::run(client, shared.clone(), settings.clone()));
            }
            Role::Keepers => {
                clients.spawn(keepers::run(client, settings.clone()));
            }
            Role::Namesakes => {
                clients.spawn(keepers::namesakes(client, settings.clone()));
            }
            Role::Waiters => {
                clients.spawn(waiters::run(client, settings.clone()));
            }
            Role::Crowd => {
                clients.spawn(crowd::run(client, settings.clone()));
            }
            Role::Visitors => {
                clients.spawn(crowd::visit(client, settings.clone()));
            }
            Role::Few => {
                clients.spawn(few::run(client, settings.clone()));
            }
            Role::Foreign => {
                let redis = settings.redis.context("foreign clients need --redis")?;
                clients.spawn(foreign::run(client, redis, settings.clone()));
            }
            Role::Front => {
                anyhow::ensure!(!settings.fronts.is_empty(), "clients of fronts need --front");
                clients.spawn(front::run(client, settings.clone()));
            }
            Role::Meeting => {
                clients.spawn(meeting::run(client, groups.clone(), settings.clone()));
            }
        }
    }
    wait_for_the_end().await;
    stop.cancel();
    let ended = timeout(LAST_CALLS_MAX, async {
        while let Some(ended) = clients.join_next().await {
            ended.context("a client panicked")??;
        }
        anyhow::Ok(())
    });
    ended.await.with_context(|| format!("clients still wait at {}", now_ns()))?
}

/// Standard input ends when the runner closes it or dies.
pub(crate) async fn wait_for_the_end() {
    let mut input = tokio::io::stdin();
    let mut byte = [0];
    while matches!(input.read(&mut byte).await, Ok(read) if read > 0) {}
}
