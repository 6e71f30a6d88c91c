//! The connection to one instance, which is initialised again after a restart of the store.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use hyper_util::rt::TokioIo;
use leasehold_lock::{
    self as lock, BackendError, Feature, LockError, Violation, observe::Observe,
};
use leasehold_proto::components::{
    FeaturesRequest, LockStoreInitRequest, MetadataRequest, lock_store_client::LockStoreClient,
};
use tokio::{
    net::UnixStream,
    sync::Mutex,
    time::{Instant, timeout, timeout_at},
};
use tonic::{
    Request, Response, Status,
    metadata::{Ascii, MetadataValue},
    transport::{Channel, Endpoint},
};
use tower::util::service_fn;
use tracing::info;

use super::status::{Failure, Verb, init_error, read};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const INSTANCE_KEY: &str = "x-component-instance";

pub(super) type Answer<R> = BoxFuture<'static, Result<Response<R>, Status>>;

/// The socket of `lock.NAME`: `NAME.sock` in the socket folder. The violation
/// names the YAML's `spec.type`.
pub fn socket_path(folder: &Path, name: &str) -> Result<PathBuf, Violation> {
    let is_plain = !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && !name.starts_with('.');
    if !is_plain {
        let problem = format!(
            "lock.{name} names no socket: use letters, digits, '-', '_' and '.' after lock."
        );
        return Err(Violation::new("spec.type", problem));
    }
    Ok(folder.join(format!("{name}.sock")))
}

/// An instance, and the parameters of its Init.
pub(super) struct Instance {
    name: MetadataValue<Ascii>,
    /// `None` if another process initialises it.
    properties: Option<BTreeMap<String, String>>,
    init_timeout: Duration,
}

impl Instance {
    pub(super) fn new(
        name: &str,
        properties: Option<BTreeMap<String, String>>,
        init_timeout: Duration,
    ) -> Result<Self, LockError> {
        let name = name.parse().map_err(|_| {
            let problem = "must be ASCII for a pluggable component";
            LockError::InvalidMetadata(vec![Violation::new("metadata.name", problem)])
        })?;
        Ok(Self { name, properties, init_timeout })
    }
}

/// An initialised instance behind a socket.
pub(super) struct Connection {
    socket: PathBuf,
    channel: Channel,
    instance: Instance,
    features: Vec<Feature>,
    /// How often Init was sent. A call that finds the instance gone sends it again only if no
    /// other call has done so in the meantime.
    inits: Mutex<u64>,
}

impl Connection {
    /// Connects, initialises if that is this process's part, and asks for the features.
    pub(super) async fn open(
        socket: PathBuf,
        instance: Instance,
        observer: Arc<dyn Observe>,
    ) -> Result<Self, LockError> {
        let channel = channel(socket.clone(), observer);
        let init_timeout = instance.init_timeout;
        let mut connection =
            Self { socket, channel, instance, features: Vec::new(), inits: Mutex::new(0) };
        let starting = async {
            connection.init().await?;
            connection.ask_features().await
        };
        let features = timeout(init_timeout, starting).await.unwrap_or_else(|_| {
            Err(Status::unavailable(format!("no answer within {init_timeout:?}")))
        });
        match features {
            Ok(features) => connection.features = features,
            Err(status) => return Err(init_error(&connection.socket, &status)),
        }
        Ok(connection)
    }

    pub(super) fn features(&self) -> &[Feature] {
        &self.features
    }

    /// Makes a call, by `until`. If the store has lost the instance because it restarted, the
    /// call had no effect, so the instance is initialised and the call is sent again. Also
    /// returns when the answered call was sent.
    pub(super) async fn call<M, R>(
        &self,
        verb: Verb,
        message: M,
        until: Option<Instant>,
        send: impl Fn(Channel, Request<M>) -> Answer<R> + Send + Sync,
    ) -> Result<(lock::Instant, R), BackendError>
    where
        M: Clone + Send + Sync,
    {
        let calling = async {
            let inits = *self.inits.lock().await;
            match self.once(verb, message.clone(), until, &send).await {
                Err(Failure::NotInitialized(why)) if self.instance.properties.is_some() => {
                    self.init_again(inits, &why).await?;
                    let again = self.once(verb, message.clone(), until, &send).await;
                    again.map_err(BackendError::from)
                }
                answer => answer.map_err(BackendError::from),
            }
        };
        match until {
            None => calling.await,
            Some(until) => timeout_at(until, calling).await.unwrap_or_else(|_| {
                Err(BackendError::Unknown(format!("{verb}: no answer in time").into()))
            }),
        }
    }

    async fn once<M, R>(
        &self,
        verb: Verb,
        message: M,
        until: Option<Instant>,
        send: &(impl Fn(Channel, Request<M>) -> Answer<R> + Send + Sync),
    ) -> Result<(lock::Instant, R), Failure> {
        let sent = lock::Instant::now();
        let mut request = self.request(message);
        if let Some(until) = until {
            request.set_timeout(until.saturating_duration_since(Instant::now()));
        }
        match send(self.channel.clone(), request).await {
            Ok(answer) => Ok((sent, answer.into_inner())),
            Err(status) => Err(read(verb, &status)),
        }
    }

    fn client(&self) -> LockStoreClient<Channel> {
        LockStoreClient::new(self.channel.clone())
    }

    fn request<M>(&self, message: M) -> Request<M> {
        let mut request = Request::new(message);
        request.metadata_mut().insert(INSTANCE_KEY, self.instance.name.clone());
        request
    }

    async fn init_again(&self, seen: u64, why: &str) -> Result<(), BackendError> {
        let mut inits = self.inits.lock().await;
        if *inits != seen {
            return Ok(());
        }
        info!(socket = %self.socket.display(), %why, "initialising the lock store again");
        match timeout(self.instance.init_timeout, self.init()).await {
            Ok(Ok(())) => {
                *inits += 1;
                Ok(())
            }
            Ok(Err(status)) => {
                let error = init_error(&self.socket, &status);
                Err(BackendError::Unavailable(format!("Init sent again: {error}").into()))
            }
            Err(_) => Err(BackendError::Unavailable("Init sent again: no answer".into())),
        }
    }

    async fn init(&self) -> Result<(), Status> {
        let Some(properties) = self.instance.properties.clone() else { return Ok(()) };
        let properties = properties.into_iter().collect();
        let metadata = Some(MetadataRequest { properties });
        let request = self.request(LockStoreInitRequest { metadata });
        self.client().init(request).await.map(|_| ())
    }

    async fn ask_features(&self) -> Result<Vec<Feature>, Status> {
        let request = self.request(FeaturesRequest {});
        let declared = self.client().features(request).await?.into_inner().features;
        let is_declared =
            |feature: &Feature| declared.iter().any(|name| name == feature.name());
        let mut features: Vec<_> = Feature::ALL.into_iter().filter(is_declared).collect();
        if !features.contains(&Feature::Inspection) {
            // WATCH needs INSPECTION: both are calls of one service.
            features.retain(|feature| *feature != Feature::Watch);
        }
        Ok(features)
    }
}

/// A channel that connects at the first call, and again after a loss.
fn channel(socket: PathBuf, observer: Arc<dyn Observe>) -> Channel {
    let socket = Arc::new(socket);
    let is_first = Arc::new(AtomicBool::new(true));
    Endpoint::from_static("http://localhost")
        .connect_timeout(CONNECT_TIMEOUT)
        // h2 counts answers that arrive after their call was cancelled as errors.
        .http2_max_local_error_reset_streams(None)
        .connect_with_connector_lazy(service_fn(move |_| {
            let (socket, observer) = (Arc::clone(&socket), Arc::clone(&observer));
            let is_first = Arc::clone(&is_first);
            async move {
                let stream = UnixStream::connect(&*socket).await?;
                if !is_first.swap(false, Ordering::Relaxed) {
                    observer.reconnected();
                }
                Ok::<_, io::Error>(TokioIo::new(stream))
            }
        }))
}
