//! Asks the nodes of a Cluster what they know of each other.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use ::redis::{Client, aio::MultiplexedConnection, cmd};
use futures_util::{
    future::join_all,
    stream::{FuturesUnordered, StreamExt as _},
};
use leasehold_lock::OpenError;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{debug, warn};

use super::{
    super::{
        failure::{Failure, describe_failure},
        keys::SLOTS,
        master::{Master, connect},
        refusal::Server,
        session::{Session, check_role},
        silence::SUSPICIOUS,
        view::View,
    },
    Cluster,
};

/// How long a listed node has to answer when the store is opened, with the connection to it.
const LISTED_MAX: Duration = Duration::from_secs(2);
/// How long the nodes have to answer later.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// How much longer than the first answer the others may take.
const OTHERS_MAX: Duration = Duration::from_millis(300);
/// How many nodes are asked in a round.
const ASKED_MAX: usize = 100;

impl Cluster {
    /// Asks the nodes that are listed.
    pub(super) async fn ask_listed(&self) -> Result<(), OpenError> {
        let asked = self.setup.nodes.iter().map(|client| async move {
            (client, timeout(LISTED_MAX, self.ask_anew(client)).await)
        });
        let (mut views, mut refusals) = (Vec::new(), Vec::new());
        for (client, answer) in join_all(asked).await {
            let master = Master { client: client.clone(), notices: 0, in_cluster: true };
            let server = Server { master: &master, named_by: None };
            match answer {
                Ok(Ok(view)) => views.push(view),
                Ok(Err(failure)) => refusals.push(server.refusal(&failure)),
                Err(_) => refusals.push(server.unreached("Redis did not answer in time")),
            }
        }
        let is_refused = |refusal: &OpenError| matches!(refusal, OpenError::Refused(_));
        // What a property can mend comes first.
        refusals.sort_by_key(|refusal| !is_refused(refusal));
        let first = refusals.into_iter().next();
        match first {
            Some(refusal) if views.is_empty() || is_refused(&refusal) => return Err(refusal),
            _ => {}
        }
        self.merge(views);
        let missing = self.table.borrow().missing();
        if missing == SLOTS {
            let why = "no node of the Cluster has a slot; create the Cluster first";
            return Err(OpenError::Unavailable(why.into()));
        }
        if missing > 0 {
            warn!(slots = missing, "slots of the Cluster belong to no node");
        }
        Ok(())
    }

    /// Asks all nodes that are connected, and if there is a reason, all that are known.
    pub(super) async fn ask_all(self: &Arc<Self>, everybody: bool) {
        let mut asked: BTreeSet<_> = self.table.borrow().owners();
        if everybody {
            asked.extend(self.table.borrow().nodes());
        }
        let mut questions = FuturesUnordered::new();
        for address in asked.iter().take(ASKED_MAX) {
            let node = self.nodes.lock().get(address).cloned();
            let session = node.and_then(|node| node.link.alive());
            let client = if everybody { self.client(address) } else { None };
            questions.push(self.question(session, client));
        }
        if everybody {
            for client in self.setup.nodes.iter().take(ASKED_MAX) {
                questions.push(self.question(None, Some(client.clone())));
            }
        }
        let mut views = Vec::new();
        let mut until = Instant::now() + ANSWER_MAX;
        while let Ok(Some(view)) = timeout_at(until, questions.next()).await {
            if let Some(view) = view {
                views.push(view);
                until = until.min(Instant::now() + OTHERS_MAX);
            }
        }
        drop(questions);
        if self.merge(views) {
            debug!("slots of the Cluster have moved");
        }
    }

    /// Asks one node, over the connection to it or over a new one.
    async fn question(
        &self,
        session: Option<Arc<Session>>,
        client: Option<Client>,
    ) -> Option<View> {
        if let Some(session) = session
            && !session.owed.is_silent_for(SUSPICIOUS)
        {
            let client = &session.master.client;
            let asking = self.read_nodes(session.connection(), client);
            return session.owed.answer(asking).await.ok();
        }
        match self.ask_anew(&client?).await {
            Ok(view) => Some(view),
            Err(failure) => {
                debug!(why = %describe_failure(&failure), "a node of the Cluster was not asked");
                None
            }
        }
    }

    async fn ask_anew(&self, client: &Client) -> Result<View, Failure> {
        let connection = connect(client, |_| {}).await?;
        check_role(connection.clone(), true, false).await?;
        self.read_nodes(connection, client).await
    }

    async fn read_nodes(
        &self,
        mut connection: MultiplexedConnection,
        client: &Client,
    ) -> Result<View, Failure> {
        use ::redis::ConnectionAddr::{Tcp, TcpTls};
        let text: String = cmd("CLUSTER").arg("NODES").query_async(&mut connection).await?;
        Ok(match client.get_connection_info().addr() {
            Tcp(host, _) => View::read(&text, host, false),
            // Certificates have names.
            TcpTls { host, .. } => View::read(&text, host, true),
            _ => View::read(&text, "", false),
        })
    }
}
