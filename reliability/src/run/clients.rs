//! The client processes of a round, and their faults.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    process::{Child, Command},
    time::{sleep, timeout},
};

use super::{Plan, Settings, client_faults::CROWD_FAULTS};
use crate::{
    client::Role,
    clock::now_ns,
    faults::{Injected, Voids},
    world::{Backend, World},
};

/// How long a client process may take to end.
const END_MAX: Duration = Duration::from_secs(40);

/// The client processes of one round.
#[derive(Debug)]
pub(super) struct Clients {
    program: PathBuf,
    /// The arguments of every process.
    arguments: Vec<String>,
    folder: PathBuf,
    children: Vec<Running>,
    /// The number of the next process; numbers are not reused.
    next: u32,
    rng: fastrand::Rng,
}

/// A process, with its own arguments.
#[derive(Debug)]
struct Running {
    role: Role,
    arguments: Vec<String>,
    child: Child,
}

impl Clients {
    /// Starts the processes of the plan.
    pub(super) fn start(
        settings: &Settings,
        plan: &Plan,
        world: &World,
        folder: &Path,
        rng: fastrand::Rng,
    ) -> anyhow::Result<Self> {
        let mut arguments = vec!["client".to_owned()];
        for socket in world.sockets() {
            arguments.push(format!("--socket={}", socket.display()));
        }
        arguments.push(format!("--pause-ms-max={}", settings.pause_ms_max));
        arguments.push(format!("--names={}", plan.name));
        arguments.push(format!("--readers={}", plan.readers));
        arguments.push(format!("--began-ns={}", now_ns()));
        if let Some(redis) = world.redis_address() {
            arguments.push(format!("--redis={redis}"));
        }
        arguments.extend(world.fronts().iter().map(|front| format!("--front={front}")));
        let mut clients = Self {
            program: settings.program.clone(),
            arguments,
            folder: folder.to_owned(),
            children: Vec::new(),
            next: 1,
            rng,
        };
        for _ in 0..plan.client_processes {
            let arguments = vec![
                format!("--clients={}", plan.clients),
                format!("--resources={}", plan.resources),
            ];
            clients.add(Role::Random, arguments)?;
        }
        for extra in &plan.extras {
            let arguments = vec![
                format!("--role={}", extra.role.name()),
                format!("--clients={}", extra.clients),
                format!("--resources={}", extra.resources),
                format!("--ttl-ms={}", extra.ttl_ms),
                format!("--wait-ms={}", extra.wait_ms),
            ];
            clients.add(extra.role, arguments)?;
        }
        Ok(clients)
    }

    fn add(&mut self, role: Role, arguments: Vec<String>) -> anyhow::Result<()> {
        let child = self.spawn(&arguments)?;
        self.children.push(Running { role, arguments, child });
        Ok(())
    }

    fn spawn(&mut self, arguments: &[String]) -> anyhow::Result<Child> {
        let number = self.next;
        self.next += 1;
        let log = File::create(self.folder.join(format!("client-{number}.log")))?;
        let history = self.folder.join(format!("history-{number}.jsonl"));
        Command::new(&self.program)
            .args(&self.arguments)
            .args(arguments)
            .arg(format!("--process={number}"))
            .arg(format!("--seed={}", self.rng.u64(..)))
            .arg(format!("--history={}", history.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("starting {}", self.program.display()))
    }

    /// Whether there is a process for this fault.
    pub(super) fn has_one_for(&self, name: &str) -> bool {
        let of_crowd = CROWD_FAULTS.contains(&name);
        self.children.iter().any(|running| (running.role == Role::Crowd) == of_crowd)
    }

    /// Injects one of [`FAULTS`] into one of them, or one of [`CROWD_FAULTS`]
    /// into the crowd.
    pub(super) async fn inject(
        &mut self,
        name: &str,
        world: &mut World,
        rng: &mut fastrand::Rng,
    ) -> anyhow::Result<Injected> {
        let from_ns = now_ns();
        let of_crowd = CROWD_FAULTS.contains(&name);
        let places: Vec<usize> = (0..self.children.len())
            .filter(|place| (self.children[*place].role == Role::Crowd) == of_crowd)
            .collect();
        let place = *rng.choice(&places).context("there is no such client process")?;
        let detail = match name {
            "client-killed" => {
                self.replace(place).await?;
                format!("client process in place {place} killed, another started")
            }
            "client-suspended" | "crowd-suspended" => {
                let ms = if of_crowd { rng.u64(1_000..6_000) } else { rng.u64(100..1_800) };
                let during = Duration::from_millis(ms);
                self.suspend(place, during).await?;
                format!("client process in place {place} suspended for {during:?}")
            }
            "crowd-killed" => {
                self.children[place].child.kill().await?;
                let during = Duration::from_millis(rng.u64(0..500));
                sleep(during).await;
                self.replace(place).await?;
                format!("killed, another started after {during:?}")
            }
            // The backend is not notified that they have gone, and they are not
            // replaced, so that their leftovers show.
            "crowd-killed-with-leasehold" => {
                world.kill_leasehold(0).await?;
                self.children[place].child.kill().await?;
                world.start_again().await?;
                self.children.remove(place);
                let name = &world.leaseholds[0].name;
                format!("and {name} with it, which was started again")
            }
            _ => bail!("unknown"),
        };
        let mut injected = injected(name, detail, from_ns);
        if name == "crowd-killed-with-leasehold" && world.backend() == Backend::Memory {
            injected.voids = Voids::Grants;
        }
        Ok(injected)
    }

    async fn replace(&mut self, place: usize) -> anyhow::Result<()> {
        let arguments = self.children[place].arguments.clone();
        let mut child = self.spawn(&arguments)?;
        std::mem::swap(&mut child, &mut self.children[place].child);
        Ok(child.kill().await?)
    }

    async fn suspend(&self, place: usize, during: Duration) -> anyhow::Result<()> {
        let id = self.children[place].child.id().and_then(|id| i32::try_from(id).ok());
        let process = id.and_then(Pid::from_raw).context("a client process ended early")?;
        kill_process(process, Signal::STOP)?;
        sleep(during).await;
        Ok(kill_process(process, Signal::CONT)?)
    }

    /// Lets all of them end their last calls.
    pub(super) async fn end(mut self) -> anyhow::Result<()> {
        for running in &mut self.children {
            drop(running.child.stdin.take());
        }
        for mut running in self.children {
            let status = timeout(END_MAX, running.child.wait())
                .await
                .context("a client process does not end")??;
            anyhow::ensure!(
                status.success(),
                "a client process ended with {status}; see its log"
            );
        }
        Ok(())
    }
}

fn injected(name: &str, detail: String, from_ns: u64) -> Injected {
    let over_ns = now_ns();
    Injected {
        name: name.to_owned(),
        detail,
        from_ns,
        over_ns,
        until_ns: over_ns,
        voids: Voids::Nothing,
        slots: None,
    }
}
