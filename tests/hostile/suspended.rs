//! A process that stands still between a grant and its answer.

use std::time::Duration;

use leasehold_proto::{
    components::{
        LockRequest as ComponentRequest, LockStoreInitRequest, MetadataRequest,
        lock_store_client::LockStoreClient,
    },
    locks::{LockRequest, locks_client::LocksClient},
};
use leasehold_testkit::{
    leasehold::Leasehold,
    proxy::{Conduct, Flow, Proxy},
    redis::RedisServer,
    wait::eventually,
};
use tokio::{io::AsyncWriteExt as _, task::JoinHandle, time::sleep};
use tonic::{
    Request,
    transport::{Channel, Endpoint},
};

use crate::target::{Address, Interface, PATIENCE};

const ROUNDS: usize = 4;
/// How long Redis's answer may take to arrive over loopback.
const ARRIVES_WITHIN: Duration = Duration::from_millis(200);
const DEADLINE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaving {
    Closes,
    Cancels,
    DeadlinePasses,
}

struct Target {
    process: Leasehold,
    interface: Interface,
    endpoint: Address,
    proxy: Proxy,
    redis: RedisServer,
    _yaml: tempfile::TempDir,
}

impl Target {
    async fn start(interface: Interface) -> Self {
        let redis = RedisServer::start();
        let proxy = Proxy::start(redis.address()).await;
        let yaml = tempfile::tempdir().unwrap();
        let (process, endpoint) = if interface == Interface::Component {
            let process = Leasehold::serve("redis", &[]);
            let endpoint = Address::Socket(process.socket("redis"));
            let properties = [("redisHost".to_owned(), proxy.address().to_owned())].into();
            let metadata = Some(MetadataRequest { properties });
            LockStoreClient::new(channel(&endpoint).await)
                .init(LockStoreInitRequest { metadata })
                .await
                .unwrap();
            (process, endpoint)
        } else {
            let component = format!(
                "apiVersion: dapr.io/v1alpha1\nkind: Component\nmetadata: {{name: store}}\n\
                 spec: {{type: lock.redis, version: v1, metadata: \
                 [{{name: redisHost, value: \"{}\"}}]}}\n",
                proxy.address()
            );
            std::fs::write(yaml.path().join("store.yaml"), component).unwrap();
            let mut process = Leasehold::sidecar(yaml.path(), &[], &[]);
            let (grpc, http) = process.listening().await.unwrap();
            let endpoint =
                Address::Port(if interface == Interface::Grpc { grpc } else { http });
            (process, endpoint)
        };
        Self { process, interface, endpoint, proxy, redis, _yaml: yaml }
    }

    fn keys(&self, resource: &str) -> usize {
        let keys: Vec<String> = redis::cmd("KEYS")
            .arg(format!("*{resource}"))
            .query(&mut self.redis.connect())
            .unwrap();
        keys.len()
    }

    /// Begins to lock. Aborting the task cancels the call or closes its connection.
    fn lock(&self, resource: String, leaving: Leaving) -> JoinHandle<()> {
        let (endpoint, interface) = (self.endpoint.clone(), self.interface);
        tokio::spawn(async move {
            if interface == Interface::Http {
                let mut wire = endpoint.connect().await;
                let body = r#"{"ttl":"60s"}"#;
                let request = format!(
                    "POST /v1.0-alpha2/lock/store/{resource} HTTP/1.1\r\nhost: localhost\r\n\
                     content-length: {}\r\n\r\n{body}",
                    body.len()
                );
                wire.write_all(request.as_bytes()).await.unwrap();
                std::future::pending::<()>().await;
            }
            let channel = channel(&endpoint).await;
            // Keeps the connection open when the call is cancelled.
            let _stays =
                (leaving == Leaving::Cancels).then(|| tokio::spawn(stays(channel.clone())));
            let ttl = Some(prost_types::Duration { seconds: 60, nanos: 0 });
            if interface == Interface::Component {
                let request =
                    ComponentRequest { resource_id: resource, ttl, ..Default::default() };
                let _ = LockStoreClient::new(channel)
                    .try_lock(within(request, leaving))
                    .await
                    .unwrap_err();
            } else {
                let request = LockRequest {
                    store_name: "store".into(),
                    resource_id: resource,
                    ttl,
                    ..Default::default()
                };
                let _ =
                    LocksClient::new(channel).lock(within(request, leaving)).await.unwrap_err();
            }
        })
    }
}

async fn stays(channel: Channel) {
    std::future::pending::<()>().await;
    drop(channel);
}

fn within<T>(message: T, leaving: Leaving) -> Request<T> {
    let mut request = Request::new(message);
    if leaving == Leaving::DeadlinePasses {
        request.set_timeout(DEADLINE);
    }
    request
}

async fn channel(endpoint: &Address) -> Channel {
    let address = match endpoint {
        Address::Socket(path) => format!("unix://{}", path.display()),
        Address::Port(address) => format!("http://{address}"),
    };
    Endpoint::from_shared(address).unwrap().connect().await.unwrap()
}

async fn nothing_is_held_after(interface: Interface, ways: &[Leaving]) {
    let target = Target::start(interface).await;
    for leaving in ways {
        for round in 0..ROUNDS {
            let resource = format!("{leaving:?}{round}");
            // Redis's answer is kept back until the process is suspended.
            target.proxy.set(Conduct { replies: Flow::Stall, ..Conduct::default() });
            let call = target.lock(resource.clone(), *leaving);
            eventually(PATIENCE, "Redis has granted", async || {
                anyhow::ensure!(target.keys(&resource) > 0);
                Ok(())
            })
            .await
            .unwrap();
            target.process.process.suspend().unwrap();
            if *leaving == Leaving::DeadlinePasses {
                call.await.unwrap();
            } else {
                call.abort();
                let _ = call.await;
            }
            // Redis's answer arrives, too.
            target.proxy.heal();
            sleep(ARRIVES_WITHIN).await;
            target.process.process.resume().unwrap();
            eventually(Duration::from_secs(10), "the grant is released", async || {
                let log = target.process.log();
                anyhow::ensure!(target.keys(&resource) == 0, "{resource}; log:\n{log}");
                Ok(())
            })
            .await
            .unwrap();
        }
    }
}

/// Trap: component 10
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_component_keeps_no_grant_whose_caller_left_while_it_stood_still() {
    use Leaving::{Cancels, Closes, DeadlinePasses};
    nothing_is_held_after(Interface::Component, &[DeadlinePasses, Cancels, Closes]).await;
}

/// Trap: sidecar 10
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sidecar_keeps_no_grant_whose_caller_left_while_it_stood_still() {
    use Leaving::{Cancels, Closes, DeadlinePasses};
    nothing_is_held_after(Interface::Grpc, &[DeadlinePasses, Cancels, Closes]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sidecar_over_http_keeps_no_grant_whose_caller_left_while_it_stood_still() {
    nothing_is_held_after(Interface::Http, &[Leaving::Closes]).await;
}
