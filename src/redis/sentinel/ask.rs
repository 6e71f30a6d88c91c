//! The question to one Sentinel.

use std::{collections::HashMap, sync::Arc};

use ::redis::{RedisError, aio::MultiplexedConnection, cmd, pipe};

use super::super::errors::describe;

/// What a Sentinel says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Opinion {
    /// The epoch of the configuration. Each failover has a greater one.
    pub(super) epoch: u64,
    /// The address of the master.
    pub(super) host: String,
    pub(super) port: u16,
}

/// Why a Sentinel has no opinion.
#[derive(Clone, Debug)]
pub(super) enum NoOpinion {
    /// It does not know a master of this name.
    Unknown,
    /// It is no Sentinel.
    NoSentinel,
    /// It did not answer in time.
    Late,
    /// The connection to it was lost.
    Lost,
    /// An error of the server or the network.
    Error(RedisError),
}

impl From<RedisError> for NoOpinion {
    fn from(error: RedisError) -> Self {
        let text = error.to_string();
        if text.contains("No such master") {
            Self::Unknown
        } else if text.contains("unknown command") {
            Self::NoSentinel
        } else {
            Self::Error(error)
        }
    }
}

impl std::fmt::Display for NoOpinion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text: Arc<str> = match self {
            Self::Unknown => "does not know a master of this name".into(),
            Self::NoSentinel => "is no Sentinel".into(),
            Self::Late => "did not answer in time".into(),
            Self::Lost => "the connection was lost".into(),
            Self::Error(error) => describe(error),
        };
        f.write_str(&text)
    }
}

/// Asks a Sentinel for the master of this name.
pub(super) async fn ask(
    connection: &mut MultiplexedConnection,
    master_name: &str,
) -> Result<Opinion, NoOpinion> {
    // The Sentinel that leads a failover goes on to describe the old master for a second or two,
    // but with the new epoch, and names the new address only here. The epoch is read first, so
    // an address is never older than its epoch.
    let mut question = pipe();
    question.add_command(cmd("SENTINEL").arg("MASTER").arg(master_name).to_owned());
    question.add_command(
        cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(master_name).to_owned(),
    );
    let (described, address): (HashMap<String, String>, Option<(String, u16)>) =
        question.query_async(connection).await?;
    let epoch = described.get("config-epoch").and_then(|epoch| epoch.parse().ok());
    match (epoch, address) {
        (Some(epoch), Some((host, port))) => Ok(Opinion { epoch, host, port }),
        _ => Err(NoOpinion::Unknown),
    }
}
