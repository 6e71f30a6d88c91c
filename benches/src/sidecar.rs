//! Lock and unlock through the sidecar's gRPC, beside the component's socket
//! alone, on one Redis server.

use std::time::Duration;

use anyhow::{Result, ensure};
use leasehold_proto::{
    dapr::{self, dapr_client::DaprClient},
    locks::{self, locks_client::LocksClient},
};
use tokio::{task::JoinSet, time::Instant};
use tonic::transport::Channel;

use crate::{
    Options, cycles,
    process::cpu_seconds,
    report::{Figures, histogram, median, row, table},
    servers::{Component, Redis, STORE, Sidecar},
};

const CALLERS: [usize; 2] = [1, 64];

/// How a cycle is called.
#[derive(Clone)]
enum Api {
    Alpha1(DaprClient<Channel>),
    Alpha2(LocksClient<Channel>),
}

impl Api {
    /// Takes a lock that must be free. Returns what unlocks it.
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
                };
                client.unlock(request).await?;
            }
        }
        Ok(())
    }
}

/// What one server did in a round.
struct Round {
    figures: Figures,
    /// Processor time of the server, which tells more than the clock where
    /// others use the machine too.
    cpu_us: f64,
}

/// Runs a round of `work` on the server of this process ID.
async fn round(pid: u32, work: impl Future<Output = Result<Figures>>) -> Result<Round> {
    let before = cpu_seconds(pid)?;
    let figures = work.await?;
    let cycles = figures.latency_us.len() as f64;
    Ok(Round { figures, cpu_us: (cpu_seconds(pid)? - before) * 1e6 / cycles })
}

/// Each caller takes and gives back a lock of its own, over one connection.
async fn measure(api: &Api, callers: usize, duration: Duration) -> Result<Figures> {
    let started = Instant::now();
    let end = started + duration;
    let mut tasks = JoinSet::new();
    for caller in 0..callers {
        let mut api = api.clone();
        tasks.spawn(async move {
            let resource = format!("bench-{caller}");
            let mut latency_us = histogram();
            while Instant::now() < end {
                let asked = Instant::now();
                let proof = api.lock(&resource).await?;
                latency_us.saturating_record(asked.elapsed().as_micros().try_into()?);
                api.unlock(&resource, proof).await?;
            }
            anyhow::Ok(latency_us)
        });
    }
    let mut latency_us = histogram();
    while let Some(done) = tasks.join_next().await {
        latency_us.add(done??)?;
    }
    let cycles = f64::from(u32::try_from(latency_us.len())?);
    Ok(Figures { rate: cycles / started.elapsed().as_secs_f64(), latency_us })
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
    let redis = Redis::start().await?;
    let component = Component::leasehold(&options.leasehold, "redis").await?;
    let sidecar = Sidecar::on_ports(&options.leasehold, &redis, &[]).await?;
    let by_socket = Sidecar::on_sockets(&options.leasehold, &redis).await?;
    let apis = [
        (Api::Alpha2(LocksClient::new(sidecar.channel().await?)), sidecar.server.pid()),
        (Api::Alpha2(LocksClient::new(by_socket.channel().await?)), by_socket.server.pid()),
        (Api::Alpha1(DaprClient::new(sidecar.channel().await?)), sidecar.server.pid()),
    ];
    let host = redis.host();
    let properties = [("redisHost", host.as_str())];
    for callers in CALLERS {
        let mut alone = Vec::new();
        let mut through = [const { Vec::new() }; 3];
        for _ in 0..options.rounds {
            let time = options.duration();
            let work = cycles::measure(&component.socket, &properties, callers, time);
            alone.push(round(component.server.pid(), work).await?);
            for ((api, pid), rounds) in apis.iter().zip(&mut through) {
                rounds.push(round(*pid, measure(api, callers, time)).await?);
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
