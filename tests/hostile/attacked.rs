//! A process under attack, and what must be true of it.

use std::{fs, time::Duration};

use tokio::time::{Instant, sleep};

use crate::{
    steady_client::SteadyClient,
    target::{Interface, PATIENCE, Target, Wire},
};

/// The peak memory that the process, which starts with some 25 MiB, may use.
/// Unread bytes have a limit per connection, but are mostly read at once.
const MEMORY_MIB_MAX: u64 = 300;

/// A process under attack that keeps serving another client.
pub struct Attacked {
    pub target: Target,
    pub steady_client: SteadyClient,
    descriptors: usize,
}

impl Attacked {
    pub async fn start(interface: Interface) -> Self {
        let target = Target::start(interface).await;
        let steady_client = SteadyClient::start(interface, &target.endpoint()).await;
        steady_client.is_served(3).await;
        let descriptors = descriptors(target.process.pid());
        Self { target, steady_client, descriptors }
    }

    pub async fn connect(&self) -> Box<dyn Wire> {
        self.target.connect().await
    }

    /// How many connections there are besides the steady client's, at least.
    pub fn attackers(&self) -> usize {
        descriptors(self.target.process.pid()).saturating_sub(self.descriptors)
    }

    /// Ends the attack. The process must close the connections that attackers have left open.
    pub async fn end(self) {
        self.steady_client.is_served(10).await;
        let give_up = Instant::now() + PATIENCE;
        while self.attackers() > 0 {
            assert!(Instant::now() < give_up, "{} descriptors are left", self.attackers());
            sleep(Duration::from_millis(20)).await;
        }
        self.steady_client.is_served(1).await;
        self.steady_client.stop();
        let log = self.target.process.log();
        assert!(!log.contains("panic"), "{log}");
        let peak = memory_peak_mib(self.target.process.pid());
        assert!(peak <= MEMORY_MIB_MAX, "it needed {peak} MiB");
        println!("{:?}: {peak} MiB at most", self.target.interface);
    }
}

fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

/// The most that was ever resident.
fn memory_peak_mib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() / 1024
}
