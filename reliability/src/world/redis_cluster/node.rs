//! One node, and what it says of the Cluster.

use anyhow::bail;
use leasehold_testkit::{ports::free_address, proxy::Proxy};
use redis::{FromRedisValue, cmd};

use super::super::{redis::connect, replicating::Replicating};

/// What the proxies call a connection of a replica.
pub(super) const REPLICA: &str = "replica";

#[derive(Debug)]
pub(super) struct Node {
    pub(super) at: Replicating,
    /// Before the port that other nodes connect to.
    pub(super) bus: Proxy,
    pub(super) id: String,
}

/// What a node says of all, sorted.
pub(super) type View = Vec<Vec<String>>;

impl Node {
    pub(super) async fn new(at: Replicating) -> anyhow::Result<Self> {
        let mut connection = at.connect().await?;
        let mut port = cmd("CONFIG");
        port.arg("GET").arg("cluster-port");
        let (_, port): (String, u16) = port.query_async(&mut connection).await?;
        let bus = format!("127.0.0.1:{port}");
        let bus = Proxy::start_with_origins(bus, free_address(), sender).await?;
        let id = cmd("CLUSTER").arg("MYID").query_async(&mut connection).await?;
        let node = Self { at, bus, id };
        node.announce().await?;
        Ok(node)
    }

    /// Lets it name the addresses of its proxies to others.
    pub(super) async fn announce(&self) -> anyhow::Result<()> {
        let mut set = cmd("CONFIG");
        set.arg("SET").arg(&["cluster-announce-ip", "127.0.0.1"]);
        set.arg(&["cluster-announce-port", self.at.port()]);
        set.arg(&["cluster-announce-bus-port", self.bus_port()]);
        Ok(set.query_async(&mut self.at.connect().await?).await?)
    }

    /// The port at which other nodes reach it.
    fn bus_port(&self) -> &str {
        self.bus.address().rsplit_once(':').map_or("", |(_, port)| port)
    }

    /// Its ID and its address.
    pub(super) fn name(&self) -> String {
        format!("{} {}@{}", self.id, self.at.proxy.address(), self.bus_port())
    }

    pub(super) async fn ask<T: FromRedisValue>(
        &self,
        command: &[&str],
    ) -> redis::RedisResult<T> {
        let mut cluster = cmd("CLUSTER");
        cluster.arg(command);
        let mut connection = redis::Client::open(self.at.server.url())?
            .get_multiplexed_async_connection()
            .await?;
        cluster.query_async(&mut connection).await
    }

    /// The name, role, master and slots of each node.
    pub(super) async fn view(&self) -> anyhow::Result<View> {
        let mut connection = connect(&self.at.server.url()).await?;
        let mut nodes = cmd("CLUSTER");
        let text: String = nodes.arg("NODES").query_async(&mut connection).await?;
        let lines = text.lines().map(|line| {
            let words: Vec<_> = line.split(' ').collect();
            let [id, address, flags, master, _, _, _, _, slots @ ..] = &words[..] else {
                bail!("{line}");
            };
            let address = address.split(',').next().unwrap_or_default();
            let name = format!("{id} {address}");
            let fixed = [&*name, flags.trim_start_matches("myself,"), *master];
            Ok(fixed.iter().chain(slots).map(|word| (*word).to_owned()).collect())
        });
        let mut view = lines.collect::<anyhow::Result<View>>()?;
        view.sort_unstable();
        Ok(view)
    }
}

/// Who connects to a node: a replica begins with a PING.
pub(super) fn client(head: &[u8]) -> Option<String> {
    const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";
    let head = head.get(..PING.len())?;
    Some(if head == PING { REPLICA } else { "client" }.to_owned())
}

/// The ID of the node that connects to another's bus: it stands in the head of each message.
fn sender(head: &[u8]) -> Option<String> {
    let id = head.strip_prefix(b"RCmb")?.get(36..76)?;
    Some(String::from_utf8_lossy(id).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_of_a_connection_show_whose_it_is() {
        assert_eq!(client(b"*1\r\n$4\r\nPING\r\n").as_deref(), Some(REPLICA));
        assert_eq!(client(b"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n").as_deref(), Some("client"));
        assert_eq!(client(b"*1\r\n$4"), None, "not enough");
        let head = [b"RCmb".as_slice(), &[0; 36], &[b'a'; 40], &[1; 9]].concat();
        assert_eq!(sender(&head), Some("a".repeat(40)));
        assert_eq!(sender(&head[..79]), None);
    }
}
