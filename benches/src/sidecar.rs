//! Lock and unlock through the sidecar's gRPC, beside the component's socket
//! alone, on one Redis server.

use anyhow::{Result, ensure};
use leasehold_proto::{
    dapr::{self, dapr_client::DaprClient},
    locks::{self, locks_client::LocksClient},
};
use leasehold_testkit::redis::RedisServer;
use tonic::transport::Channel;

use crate::{
    Options, cycles,
    process::cpu_seconds,
    report::{Figures, median, row, table},
    servers::{Component, STORE, Sidecar},
};

/// The API that a cycle uses.
#[derive(Clone)]
pub(crate) enum Dapr {
    Alpha1(DaprClient<Channel>),
    Alpha2(LocksClient<Channel>),
}

impl cycles::Api for Dapr {
    async fn lock(&mut self, resource: &str) -> Result<String> {
        match self {
            Self::Alpha1(client) => {
                let request = dapr::TryLockRequest {
                    store_name: STORE.into(),
                    resource_id: resource.into(),
                    lock_owner: resource.into(),
                    expiry_in_seconds: 30,
                };
                let granted = client.try_lock_alpha1(request).await?.into_inner();
                ensure!(granted.success, "{resource} is held");
                Ok(resource.into())
            }
            Self::Alpha2(client) => {
                let request = locks::LockRequest {
                    store_name: STORE.into(),
                    resource_id: resource.into(),
                    immediate: true,
                    ..Default::default()
                };
                Ok(client.lock(request).await?.into_inner().lock_id)
            }
        }
    }

    async fn unlock(&mut self, resource: &str, proof: String) -> Result<()> {
        match self {
            Self::Alpha1(client) => {
                let request = dapr::UnlockRequest {
                    store_name: STORE.into(),
                    resource_id: resource.into(),
                    lock_owner: proof,
                };
                let status = client.unlock_alpha1(request).await?.into_inner().status;
                ensure!(status == 0, "{resource} was not unlocked: {status}");
            }
            Self::Alpha2(client) => {
                let request = locks::UnlockRequest {
                    store_name: STORE.into(),
                    resource_id: resource.into(),
                    lock_id: proof,
                    ..Default::default()
                };
                client.unlock(request).await?;
            }
        }
        Ok(())
    }
}

/// The result of one server in a round.
struct Round {
    figures: Figures,
    /// Processor time of the server, which is more meaningful than the clock on
    /// a shared machine.
    cpu_us: f64,
}

/// Runs a round of `work` on the server of this process ID.
async fn round(pid: u32, work: impl Future<Output = Result<Figures>>) -> Result<Round> {
    let before = cpu_seconds(pid)?;
    let figures = work.await?;
    let cycles = figures.cycles();
    Ok(Round { figures, cpu_us: (cpu_seconds(pid)? - before) * 1e6 / cycles })
}

/// The sidecar beside the component alone, in turn.
pub(crate) async fn redis(options: &Options) -> Result<()> {
    table(
        "Sidecar on Redis: lock and unlock, cycles/s (medians)",
        &[
            "callers",
            "component's socket",
            "alpha2, TCP",
            "acquire p50/p99 ms",
            "alpha2, Unix socket",
            "alpha1, TCP",
            "time of alpha2 TCP, alpha2 Unix, alpha1 TCP / component",
            "processor time a cycle: component, alpha2 TCP, alpha2 Unix, alpha1 TCP, us",
        ],
    );
    let redis = RedisServer::start();
    let component = Component::leasehold(&options.leasehold, "redis").await?;
    let sidecar = Sidecar::on_ports(&options.leasehold, &redis, &[]).await?;
    let by_socket = Sidecar::on_sockets(&options.leasehold, &redis).await?;
    let apis = [
        (Dapr::Alpha2(LocksClient::new(sidecar.channel().await?)), sidecar.pid()?),
        (Dapr::Alpha2(LocksClient::new(by_socket.channel().await?)), by_socket.pid()?),
        (Dapr::Alpha1(DaprClient::new(sidecar.channel().await?)), sidecar.pid()?),
    ];
    let host = redis.address();
    let properties = [("redisHost", host.as_str())];
    for &callers in &options.callers {
        let mut alone = Vec::new();
        let mut through = [const { Vec::new() }; 3];
        for _ in 0..options.rounds {
            let time = options.duration();
            let work = cycles::through(&component.socket, &properties, callers, time);
            alone.push(round(component.pid()?, work).await?);
            for ((api, pid), rounds) in apis.iter().zip(&mut through) {
                rounds.push(round(*pid, cycles::measure(api, callers, time)).await?);
            }
        }
        let ratio = |rounds: &[Round]| {
            let pairs = alone.iter().zip(rounds);
            median(pairs.map(|(a, b)| a.figures.rate / b.figures.rate).collect())
        };
        let middle = |rounds: &[Round], figure: fn(&Round) -> f64| {
            median(rounds.iter().map(figure).collect())
        };
        let rate = |rounds: &[Round]| format!("{:.0}", middle(rounds, |r| r.figures.rate));
        let cpu = |rounds: &[Round]| format!("{:.0}", middle(rounds, |r| r.cpu_us));
        let [tcp, unix, alpha1] = &through;
        row(&[
            callers.to_string(),
            rate(&alone),
            rate(tcp),
            format!(
                "{:.2}/{:.2}",
                middle(tcp, |r| r.figures.ms(0.5)),
                middle(tcp, |r| r.figures.ms(0.99))
            ),
            rate(unix),
            rate(alpha1),
            format!("{:.2}, {:.2}, {:.2}", ratio(tcp), ratio(unix), ratio(alpha1)),
            [&alone, tcp, unix, alpha1].map(|rounds| cpu(rounds)).join(", "),
        ]);
    }
    Ok(())
}
