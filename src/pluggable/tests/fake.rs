//! A lock store that grants everything unless instructed otherwise, and reports
//! the calls that it gets.

use std::{
    collections::{HashMap, VecDeque},
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use leasehold_lock::Store;
use leasehold_proto::components::{
    FeaturesRequest, FeaturesResponse, LockRequest, LockResponse, LockStoreInitRequest,
    LockStoreInitResponse, PingRequest, PingResponse, RenewLockRequest, RenewLockResponse,
    UnlockRequest, UnlockResponse,
    lock_store_server::{LockStore, LockStoreServer},
};
use leasehold_proto::locks::inspection_server::InspectionServer;
use tempfile::TempDir;
use tokio::{
    net::UnixListener,
    sync::{mpsc, oneshot},
    task::AbortHandle,
    time::timeout,
};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status, transport::Server};

use crate::{component, inspection::Inspected};

/// A call that the store got.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Asked {
    Init {
        instance: String,
        properties: HashMap<String, String>,
    },
    TryLock(LockRequest),
    Lock(LockRequest),
    Renew(RenewLockRequest),
    Unlock(UnlockRequest),
    /// A silent call was dropped by its caller.
    Dropped,
}

/// The instructed reaction to a call.
pub(crate) enum Reaction {
    Refuse(Status),
    Grant(LockResponse),
    /// Grant, once this is sent.
    GrantAfter(oneshot::Receiver<()>),
    SayNothing,
}

#[derive(Clone)]
struct Service {
    asked: mpsc::Sender<Asked>,
    reactions: Arc<Mutex<VecDeque<Reaction>>>,
    features: Arc<[&'static str]>,
}

pub(crate) struct Fake {
    folder: TempDir,
    service: Service,
    asked: mpsc::Receiver<Asked>,
    server: AbortHandle,
}

impl Fake {
    pub(crate) async fn start(features: &[&'static str]) -> Self {
        Self::start_with(features, None).await
    }

    /// With an Inspection service beside it.
    pub(crate) async fn inspected(features: &[&'static str], inspected: Inspected) -> Self {
        Self::start_with(features, Some(inspected)).await
    }

    async fn start_with(features: &[&'static str], inspected: Option<Inspected>) -> Self {
        let (sender, asked) = mpsc::channel(64);
        let service =
            Service { asked: sender, reactions: Arc::default(), features: features.into() };
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("fake.sock");
        let incoming = UnixListenerStream::new(UnixListener::bind(&socket).unwrap());
        let serving = Server::builder()
            .add_service(LockStoreServer::new(service.clone()))
            .add_optional_service(inspected.map(InspectionServer::new))
            .serve_with_incoming(incoming);
        let server = tokio::spawn(async { serving.await.unwrap() }).abort_handle();
        Self { folder, service, asked, server }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("fake.sock")
    }

    /// Opens the store, which includes its Init.
    pub(crate) async fn open(&mut self, properties: &[(&str, &str)]) -> Store {
        let store = component(self.socket(), properties).open().await.unwrap();
        assert!(matches!(self.next().await, Asked::Init { .. }));
        store
    }

    /// Instructs the next call for which nothing is instructed yet.
    pub(crate) fn instruct(&self, reaction: Reaction) {
        self.service.reactions.lock().unwrap().push_back(reaction);
    }

    /// The next call, which must come within ten seconds.
    pub(crate) async fn next(&mut self) -> Asked {
        timeout(Duration::from_secs(10), self.asked.recv()).await.unwrap().unwrap()
    }

    /// Asserts that no call comes for a moment.
    pub(crate) async fn must_be_left_alone(&mut self) {
        let asked = timeout(Duration::from_millis(300), self.asked.recv()).await;
        assert!(asked.is_err(), "{asked:?}");
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Service {
    /// Reports a call and reacts as instructed; `None` means the usual answer.
    async fn ask(&self, asked: Asked) -> Result<Option<LockResponse>, Status> {
        self.asked.send(asked).await.unwrap();
        let reaction = self.reactions.lock().unwrap().pop_front();
        match reaction {
            None => Ok(None),
            Some(Reaction::Refuse(status)) => Err(status),
            Some(Reaction::Grant(response)) => Ok(Some(response)),
            Some(Reaction::GrantAfter(gate)) => {
                let _ = gate.await;
                Ok(None)
            }
            Some(Reaction::SayNothing) => {
                let _dropped = OnDrop(self.asked.clone());
                std::future::pending().await
            }
        }
    }
}

struct OnDrop(mpsc::Sender<Asked>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        let _ = self.0.try_send(Asked::Dropped);
    }
}

fn grant(asked: &LockRequest) -> LockResponse {
    LockResponse { lock_id: asked.lock_id.clone(), ..LockResponse::default() }
}

#[tonic::async_trait]
impl LockStore for Service {
    async fn init(
        &self,
        request: Request<LockStoreInitRequest>,
    ) -> Result<Response<LockStoreInitResponse>, Status> {
        let instance = request
            .metadata()
            .get("x-component-instance")
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        let properties = request.into_inner().metadata.unwrap_or_default().properties;
        self.ask(Asked::Init { instance, properties }).await?;
        Ok(Response::new(LockStoreInitResponse {}))
    }

    async fn features(
        &self,
        _: Request<FeaturesRequest>,
    ) -> Result<Response<FeaturesResponse>, Status> {
        let features = self.features.iter().map(|name| (*name).to_owned()).collect();
        Ok(Response::new(FeaturesResponse { features }))
    }

    async fn ping(&self, _: Request<PingRequest>) -> Result<Response<PingResponse>, Status> {
        Ok(Response::new(PingResponse {}))
    }

    async fn try_lock(
        &self,
        request: Request<LockRequest>,
    ) -> Result<Response<LockResponse>, Status> {
        let request = request.into_inner();
        let instructed = self.ask(Asked::TryLock(request.clone())).await?;
        Ok(Response::new(instructed.unwrap_or_else(|| grant(&request))))
    }

    async fn lock(
        &self,
        request: Request<LockRequest>,
    ) -> Result<Response<LockResponse>, Status> {
        let request = request.into_inner();
        let instructed = self.ask(Asked::Lock(request.clone())).await?;
        Ok(Response::new(instructed.unwrap_or_else(|| grant(&request))))
    }

    async fn renew_lock(
        &self,
        request: Request<RenewLockRequest>,
    ) -> Result<Response<RenewLockResponse>, Status> {
        let request = request.into_inner();
        let ttl = request.ttl;
        self.ask(Asked::Renew(request)).await?;
        Ok(Response::new(RenewLockResponse { ttl }))
    }

    async fn unlock(
        &self,
        request: Request<UnlockRequest>,
    ) -> Result<Response<UnlockResponse>, Status> {
        self.ask(Asked::Unlock(request.into_inner())).await?;
        Ok(Response::new(UnlockResponse {}))
    }
}
