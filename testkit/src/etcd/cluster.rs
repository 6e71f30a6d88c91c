//! Several members.

use anyhow::Context as _;

use super::{EtcdServer, MemberConfig, STARTS_MAX, Tls, Version, server::READY_WITHIN};
use crate::wait::eventually;

/// Several members; TLS towards clients if asked.
#[derive(Debug)]
pub struct EtcdCluster {
    /// The members.
    pub members: Vec<EtcdServer>,
    /// The certificates, if any.
    pub tls: Option<Tls>,
}

impl EtcdCluster {
    /// Starts `size` members and waits until all answer.
    pub async fn start(version: Version, size: usize, tls: bool) -> Self {
        let program = version.program().unwrap();
        let tls = tls.then(Tls::generate);
        for _ in 0..STARTS_MAX {
            let members = MemberConfig::cluster(size);
            let prepare = |member| EtcdServer::prepare(&program, member, tls.as_ref(), &[]);
            let mut members: Vec<EtcdServer> = members.iter().map(prepare).collect();
            for member in &mut members {
                member.restart();
            }
            let mut all_up = true;
            for member in &mut members {
                all_up = all_up && member.comes_up().await.unwrap();
            }
            if all_up {
                return Self { members, tls };
            }
        }
        panic!("a member of etcd ended {STARTS_MAX} times when it was started")
    }

    /// The property `endpoints`.
    pub fn endpoints(&self) -> String {
        self.members.iter().map(|member| member.url.as_str()).collect::<Vec<_>>().join(",")
    }

    /// Which member leads, once one does.
    pub async fn leader(&self) -> usize {
        let leads = async || self.find_leader().await.context("nobody leads");
        eventually(READY_WITHIN, "a member leads", leads).await.unwrap()
    }

    async fn find_leader(&self) -> Option<usize> {
        for (n, member) in self.members.iter().enumerate() {
            let mut client = member.client().await;
            if let Ok(status) = client.status().await
                && status.leader() == status.header().unwrap().member_id()
            {
                return Some(n);
            }
        }
        None
    }
}
