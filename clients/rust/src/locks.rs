//! The client.

use std::{env, fmt, sync::Arc};

use tonic::{metadata::MetadataValue, transport::Channel};

use crate::{
    LockBuilder, Tries, Waits,
    address::Address,
    client::Client,
    error::{Error, Failure},
};

/// The locks of one store of the sidecar. A clone shares the connection.
#[derive(Clone, Debug)]
pub struct Locks {
    client: Arc<Client>,
}

impl Locks {
    /// A client of the sidecar that the environment names; `store` is the name of its component.
    ///
    /// The address is `DAPR_GRPC_ENDPOINT` (`host:port`, `http://…`, `https://…`, `unix:…`), or else
    /// `127.0.0.1` and `DAPR_GRPC_PORT`, or else port 50001. A host alone has port 50001 too, `http://`
    /// 80 and `https://` 443. `DAPR_API_TOKEN`, if it is set, is sent with every call. The connection is made when it is first needed, and again when it is lost.
    /// It lives in the runtime in which this is called.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if a variable cannot be right, or `store` is empty.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub fn new(store: impl Into<String>) -> Result<Self, Error> {
        Self::builder(store).build()
    }

    /// A client with other settings than those of the environment.
    pub fn builder(store: impl Into<String>) -> LocksBuilder {
        LocksBuilder { store: store.into(), address: None, channel: None, api_token: None }
    }

    /// Asks for a lock and waits for it.
    pub fn lock(&self, name: impl Into<String>) -> LockBuilder<Waits> {
        LockBuilder::new(self.clone(), name.into(), false)
    }

    /// Asks for a lock and does not wait: there is none if somebody else holds it.
    pub fn try_lock(&self, name: impl Into<String>) -> LockBuilder<Tries> {
        LockBuilder::new(self.clone(), name.into(), true)
    }

    /// The channel to the sidecar, for the calls of [`raw`](crate::raw).
    pub fn channel(&self) -> Channel {
        self.client.channel()
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Whether `other` is this client or a clone of it.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.client, &other.client)
    }
}

/// Settings of [`Locks`]; from [`Locks::builder`].
#[derive(Clone)]
#[must_use]
pub struct LocksBuilder {
    store: String,
    address: Option<String>,
    channel: Option<Channel>,
    api_token: Option<String>,
}

/// Without the API token, which is a secret.
impl fmt::Debug for LocksBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocksBuilder")
            .field("store", &self.store)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl LocksBuilder {
    /// The address of the sidecar, in the forms of `DAPR_GRPC_ENDPOINT`; takes precedence over the
    /// environment.
    pub fn address(mut self, address: impl Into<String>) -> Self {
        self.address = Some(address.into());
        self
    }

    /// A channel of the caller, in place of an address. It must not put deadlines on calls.
    pub fn channel(mut self, channel: Channel) -> Self {
        self.channel = Some(channel);
        self
    }

    /// The API token; takes precedence over `DAPR_API_TOKEN`. An empty one is not sent.
    pub fn api_token(mut self, token: impl Into<String>) -> Self {
        self.api_token = Some(token.into());
        self
    }

    /// The client.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if the address or the token cannot be right, or the store is empty.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime, unless it was given a channel.
    pub fn build(self) -> Result<Locks, Error> {
        let Self { store, address, channel, api_token } = self;
        if store.is_empty() {
            return Err(Failure::option("store", "is empty"));
        }
        let variable = |name: &str| env::var(name).ok();
        let (channel, address) = if let Some(channel) = channel {
            (channel, None)
        } else {
            let address = match address {
                Some(address) => Address::given(&address),
                None => Address::from_environment(variable)?,
            };
            (address.connect()?, Some(address))
        };
        let api_token = api_token.or_else(|| variable("DAPR_API_TOKEN")).unwrap_or_default();
        let api_token = if api_token.is_empty() {
            None
        } else {
            let mut value = MetadataValue::try_from(&*api_token)
                .map_err(|_| Failure::option("api_token", "must be printable ASCII"))?;
            value.set_sensitive(true);
            Some(value)
        };
        let client = Client::new(channel, address, store.into(), api_token);
        Ok(Locks { client: Arc::new(client) })
    }
}
