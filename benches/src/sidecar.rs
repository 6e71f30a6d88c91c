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
    report::{Figures, histogram, median, median_of, row, table},
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
        ],
    );
    let redis = Redis::start().await?;
    let component = Component::leasehold(&options.leasehold, "redis").await?;
    let sidecar = Sidecar::on_ports(&options.leasehold, &redis, &[]).await?;
    let by_socket = Sidecar::on_sockets(&options.leasehold, &redis).await?;
    let apis = [
        Api::Alpha2(LocksClient::new(sidecar.channel().await?)),
        Api::Alpha2(LocksClient::new(by_socket.channel().await?)),
        Api::Alpha1(DaprClient::new(sidecar.channel().await?)),
    ];
    let host = redis.host();
    let properties = [("redisHost", host.as_str())];
    for callers in CALLERS {
        let mut alone = Vec::new();
        let mut through = [const { Vec::new() }; 3];
        for _ in 0..options.rounds {
            let time = options.duration();
            alone.push(cycles::measure(&component.socket, &properties, callers, time).await?);
            for (api, figures) in apis.iter().zip(&mut through) {
                figures.push(measure(api, callers, time).await?);
            }
        }
        let ratio = |figures: &[Figures]| {
            median(alone.iter().zip(figures).map(|(a, b)| a.rate / b.rate).collect())
        };
        let [tcp, unix, alpha1] = &through;
        row(&[
            callers.to_string(),
            format!("{:.0}", median_of(&alone, |f| f.rate)),
            format!("{:.0}", median_of(tcp, |f| f.rate)),
            format!(
                "{:.2}/{:.2}",
                median_of(tcp, |f| f.ms(0.5)),
                median_of(tcp, |f| f.ms(0.99))
            ),
            format!("{:.0}", median_of(unix, |f| f.rate)),
            format!("{:.0}", median_of(alpha1, |f| f.rate)),
            format!("{:.2}, {:.2}, {:.2}", ratio(tcp), ratio(unix), ratio(alpha1)),
        ]);
    }
    Ok(())
}
