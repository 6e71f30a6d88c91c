//! A cluster of three etcd members; the traffic between them can be cut.

use std::{
    collections::HashSet,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use etcd_client::{Client, ConnectOptions, GetOptions, LeaseStatus};
use leasehold_testkit::{
    etcd::{MemberConfig, STARTS_MAX},
    ports::free_address,
    proxy::{Conduct, Proxy},
    wait::eventually,
};
use tokio::process::Command;

use super::member::{Member, PREFIX};

/// How many members there are.
pub const MEMBERS: usize = 3;
const READY_WITHIN: Duration = Duration::from_secs(40);
const TOOL_TIMEOUT: Duration = Duration::from_secs(20);
/// How many idle leases a leasehold process keeps at most.
const KEPT_LEASES_MAX: usize = 1024;
/// The prefix of leases in a list of leftovers.
pub const LEASE: &str = "lease ";
/// A lease of a longer TTL is litter if nobody needs it.
const LASTING_S: i64 = 20;
/// Larger than any number of revisions in a run; etcd's recommendation.
const BUMP: &str = "1000000000";

/// The members, and the proxies between them.
#[derive(Debug)]
pub struct EtcdCluster {
    members: Vec<Member>,
    peers: Vec<Proxy>,
    folder: PathBuf,
    tool: PathBuf,
    restores: u32,
    /// The leases that existed when a leasehold process had just been killed. Its idle
    /// ones stay until their TTL ends.
    of_killed: HashSet<i64>,
}

impl EtcdCluster {
    /// Starts one and waits until all members answer.
    pub async fn start(program: &Path, folder: &Path) -> anyhow::Result<Self> {
        for number in 0..STARTS_MAX {
            let mut cluster =
                Self::prepare(program, &folder.join(format!("etcd-{number}"))).await?;
            if cluster.comes_up().await? {
                return Ok(cluster);
            }
        }
        bail!("a member of etcd ended {STARTS_MAX} times when it was started")
    }

    async fn prepare(program: &Path, folder: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let (mut addresses, mut peers) = (Vec::new(), Vec::new());
        for _ in 0..MEMBERS {
            let (client, peer) = (free_address(), free_address());
            // The proxy's address is written into the cluster's data: it must stay.
            let known_at = free_address();
            peers.push(Proxy::start_with_origins(peer, known_at, sender).await?);
            addresses.push((client, peer, known_at));
        }
        let members = MemberConfig::cluster_at(addresses).into_iter();
        Ok(Self {
            members: members.map(|config| Member::new(config, program, folder)).collect(),
            peers,
            folder: folder.to_owned(),
            tool: tool(program, "etcdctl"),
            restores: 0,
            of_killed: HashSet::new(),
        })
    }

    /// Starts the members and waits until all answer; `false` if one has ended instead,
    /// most likely because its port was taken meanwhile.
    async fn comes_up(&mut self) -> anyhow::Result<bool> {
        for member in &mut self.members {
            member.start()?;
        }
        for member in &mut self.members {
            let what = format!("an etcd member answers; its log is {}", member.log().display());
            let answers = eventually(READY_WITHIN, &what, async || {
                if !member.runs() {
                    return Ok(false);
                }
                member.client().await?.get("ready", None).await?;
                member.learn_id().await?;
                Ok(true)
            });
            if !answers.await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Where the members serve clients.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.members.iter().map(|member| member.config.client).collect()
    }

    /// The members.
    pub fn members(&mut self) -> &mut [Member] {
        &mut self.members
    }

    /// A client past the proxies, of all members.
    pub async fn client(&self) -> anyhow::Result<Client> {
        let options = ConnectOptions::new()
            .with_timeout(Duration::from_secs(4))
            .with_connect_timeout(Duration::from_secs(2));
        let endpoints = self.addresses().into_iter().map(|address| address.to_string());
        let endpoints: Vec<String> = endpoints.collect();
        Client::connect(endpoints, Some(options)).await.context("etcd does not answer")
    }

    /// Which member leads.
    pub async fn leader(&self) -> anyhow::Result<usize> {
        eventually(READY_WITHIN, "a leader", async || {
            for (number, member) in self.members.iter().enumerate() {
                let Ok(mut client) = member.client().await else { continue };
                let Ok(status) = client.status().await else { continue };
                let id = status.header().map(etcd_client::ResponseHeader::member_id);
                if id == Some(status.leader()) {
                    return Ok(number);
                }
            }
            bail!("nobody leads")
        })
        .await
    }

    /// Returns once all members follow one leader in one term. A member that was
    /// cut off comes back with a higher term, which deposes the leader (etcd 3.4
    /// has no pre-vote).
    pub async fn agree(&self) -> anyhow::Result<()> {
        eventually(READY_WITHIN, "the etcd members agree", async || {
            let mut views = Vec::new();
            for member in &self.members {
                let status = member.client().await?.status().await?;
                views.push((status.leader(), status.raft_term()));
            }
            views.dedup();
            if views.len() == 1 && views[0].0 != 0 { Ok(()) } else { bail!("{views:?}") }
        })
        .await
    }

    /// Limits the data of all members, which are restarted for that one after
    /// the other.
    pub async fn set_quota(&mut self, bytes: Option<u64>) -> anyhow::Result<()> {
        for number in 0..MEMBERS {
            let member = &mut self.members[number];
            member.kill();
            member.set_quota(bytes);
            self.ready(number).await?;
        }
        Ok(())
    }

    /// Cuts a member off from the others; clients still reach it.
    pub fn isolate(&self, number: usize) {
        let shunned = vec![self.members[number].id.clone()];
        for (other, proxy) in self.peers.iter().enumerate() {
            proxy.set(if other == number {
                Conduct::partition()
            } else {
                Conduct { shunned: shunned.clone(), ..Conduct::default() }
            });
        }
    }

    /// Ends every partition.
    pub fn reunite(&self) {
        for proxy in &self.peers {
            proxy.heal();
        }
    }

    /// Starts the members that do not run, and returns once all answer.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        for member in &mut self.members {
            member.start()?;
        }
        for number in 0..MEMBERS {
            self.ready(number).await?;
        }
        Ok(())
    }

    /// Returns once a member answers.
    pub async fn ready(&mut self, number: usize) -> anyhow::Result<()> {
        let member = &mut self.members[number];
        eventually(READY_WITHIN, "the etcd member answers", async || {
            // Its port may not be free yet.
            member.start()?;
            member.client().await?.get("ready", None).await?;
            Ok(())
        })
        .await
        .with_context(|| format!("its log is {}", member.log().display()))
    }

    /// Ends all faults.
    pub async fn heal(&mut self) -> anyhow::Result<()> {
        self.reunite();
        for member in &mut self.members {
            if member.runs() {
                member.resume()?;
            }
        }
        self.restart().await
    }

    /// The leases that do not end soon by themselves. After a restore of a snapshot
    /// none counts: it brings back leases that were revoked since.
    pub async fn lasting_leases(&self) -> anyhow::Result<Vec<String>> {
        if self.restores > 0 {
            return Ok(Vec::new());
        }
        let mut client = self.client().await?;
        let mut lasting = Vec::new();
        for lease in client.leases().await?.leases() {
            if self.of_killed.contains(&lease.id()) {
                continue;
            }
            let ttl_s = client.lease_time_to_live(lease.id(), None).await?.granted_ttl();
            if ttl_s > LASTING_S {
                lasting.push(format!("{LEASE}{:x} of {ttl_s} s", lease.id()));
            }
        }
        Ok(lasting)
    }

    /// Excuses the present leases: a leasehold process was killed, and its idle leases
    /// cannot be distinguished.
    pub(super) async fn excuse_leases(&mut self) -> anyhow::Result<()> {
        // An earlier fault may still have effects.
        let leases = eventually(READY_WITHIN, "etcd lists its leases", async || {
            Ok(self.client().await?.leases().await?)
        })
        .await?;
        self.of_killed.extend(leases.leases().iter().map(LeaseStatus::id));
        Ok(())
    }

    /// Writes a snapshot to a file.
    pub async fn snapshot(&self) -> anyhow::Result<PathBuf> {
        let file = self.folder.join(format!("snapshot-{}", self.restores));
        let endpoint = self.members[0].config.client.to_string();
        let arguments = [String::from("snapshot"), "save".into(), file.display().to_string()];
        let endpoint = [String::from("--endpoints"), endpoint];
        run(&self.tool, endpoint.iter().chain(&arguments)).await?;
        Ok(file)
    }

    /// Replaces the data of all members, which must not run, by `snapshot`.
    /// With `bumped`, the revision continues beyond all earlier ones.
    pub async fn restore(&mut self, snapshot: &Path, bumped: bool) -> anyhow::Result<()> {
        self.restores += 1;
        let tool = if bumped {
            bumping_tool(self.members[0].program()).await.context("no etcdutl that can bump")?
        } else {
            self.tool.clone()
        };
        for member in &mut self.members {
            let data =
                self.folder.join(format!("{}-restored-{}", member.config.name, self.restores));
            let mut arguments = vec!["snapshot".to_owned(), "restore".to_owned()];
            arguments.push(snapshot.display().to_string());
            arguments.extend(member.config.restore_arguments(&data));
            if bumped {
                arguments
                    .extend(["--bump-revision", BUMP, "--mark-compacted"].map(String::from));
            }
            run(&tool, &arguments).await?;
            member.use_data(&data)?;
        }
        std::fs::remove_file(snapshot)?;
        self.restart().await
    }

    /// The keys and leases that should not exist: all keys, and more leases
    /// without a key than `processes` may keep for reuse. A session without
    /// waiters is kept for half a minute.
    pub async fn leftovers(&self, processes: usize) -> anyhow::Result<Vec<String>> {
        let mut client = self.client().await?;
        let options = GetOptions::new().with_prefix().with_keys_only();
        let found = client.get(PREFIX, Some(options)).await?;
        let sessions = format!("{PREFIX}/s/");
        let (mut left, mut sessions_seen) = (Vec::new(), 0);
        for pair in found.kvs() {
            let key = String::from_utf8_lossy(pair.key());
            if key.starts_with(&sessions) {
                sessions_seen += 1;
                if sessions_seen > processes || pair.lease() == 0 {
                    left.push(format!("{key} (of {sessions_seen} sessions)"));
                }
                continue;
            }
            left.push(format!("{key} (lease {:x})", pair.lease()));
        }
        let leases = client.leases().await?.leases().len();
        let leases_max = processes * KEPT_LEASES_MAX + sessions_seen;
        if leases > leases_max {
            left.push(format!("{leases} leases; {leases_max} may be kept"));
        }
        Ok(left)
    }
}

/// Whether there is a tool that restores with a later revision: that of 3.6.
pub async fn bumping_tool(program: &Path) -> Option<PathBuf> {
    let tool = tool(program, "etcdutl");
    let mut help = Command::new(&tool);
    let output = help.args(["snapshot", "restore", "--help"]).output().await.ok()?;
    String::from_utf8_lossy(&output.stdout).contains("--bump-revision").then_some(tool)
}

/// A tool beside `program`, else on the path.
fn tool(program: &Path, name: &str) -> PathBuf {
    let beside = program.with_file_name(name);
    if beside.exists() { beside } else { PathBuf::from(name) }
}

async fn run(
    tool: &Path,
    arguments: impl IntoIterator<Item = impl AsRef<std::ffi::OsStr>>,
) -> anyhow::Result<()> {
    let mut command = Command::new(tool);
    command.env("ETCDCTL_API", "3").args(arguments).kill_on_drop(true);
    let output = tokio::time::timeout(TOOL_TIMEOUT, command.output())
        .await
        .with_context(|| format!("{} does not end", tool.display()))?
        .with_context(|| format!("cannot run {}", tool.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {said}");
    Ok(())
}

/// The ID of the member that opened a connection to another member, in hexadecimal.
fn sender(head: &[u8]) -> Option<String> {
    let head = String::from_utf8_lossy(head);
    let (head, _) = head.split_once("\r\n\r\n")?;
    head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("x-server-from").then(|| value.trim().to_owned())
    })
}
