//! A client's connection to the fronts, with retries as clients of Redis have them.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::resp::{Connection, Reply};

/// How often a command is sent at most.
const TRIES_MAX: u32 = 4;
/// How long a client waits for a reply.
const REPLY_WITHIN_MS: std::ops::Range<u64> = 1_000..3_000;
/// How long it waits before it tries again.
const AGAIN_AFTER_MS: std::ops::Range<u64> = 4..512;

/// The outcome of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// It was not sent.
    Never,
    /// It was sent, and no reply was received.
    Lost,
    Answered {
        reply: Reply,
        /// Whether it was sent before, and no reply was received.
        is_again: bool,
    },
}

impl Sent {
    /// This outcome, if the command was also sent before.
    pub(super) fn after_others(self) -> Self {
        match self {
            Self::Never | Self::Lost => Self::Lost,
            Self::Answered { reply, .. } => Self::Answered { reply, is_again: true },
        }
    }
}

/// A client's connections, one at a time.
#[derive(Debug)]
pub(super) struct Link {
    addresses: Vec<String>,
    /// The front that it is connected to, by its number.
    pub(super) home: usize,
    is_resp3: bool,
    connection: Option<Connection>,
    rng: fastrand::Rng,
}

impl Link {
    /// A link that is not connected yet.
    pub(super) fn new(addresses: Vec<String>, home: usize, rng: fastrand::Rng) -> Self {
        Self { addresses, home, is_resp3: false, connection: None, rng }
    }

    /// Switches to this front and this version of the protocol.
    pub(super) fn change(&mut self, home: usize, is_resp3: bool) {
        let home = home % self.addresses.len().max(1);
        if (home, is_resp3) != (self.home, self.is_resp3) {
            self.connection = None;
        }
        (self.home, self.is_resp3) = (home, is_resp3);
    }

    /// How many fronts there are.
    pub(super) fn fronts(&self) -> usize {
        self.addresses.len()
    }

    /// Sends a command until it is answered, each time over a new connection.
    pub(super) async fn ask(&mut self, words: &[&str]) -> Sent {
        let mut was_sent = false;
        for number in 0..TRIES_MAX {
            if number > 0 {
                sleep(Duration::from_millis(self.rng.u64(AGAIN_AFTER_MS))).await;
            }
            let within = Duration::from_millis(self.rng.u64(REPLY_WITHIN_MS));
            let Some(mut connection) = self.connect(within).await else { continue };
            match timeout(within, connection.ask(words)).await {
                Ok(Ok(reply)) => {
                    self.connection = Some(connection);
                    return Sent::Answered { reply, is_again: was_sent };
                }
                Err(_) if self.rng.bool() => connection.reset(),
                Ok(Err(_)) | Err(_) => {}
            }
            was_sent = true;
        }
        if was_sent { Sent::Lost } else { Sent::Never }
    }

    /// Sends a command, and disconnects before it can have read a reply.
    pub(super) async fn ask_and_leave(&mut self, words: &[&str]) -> Sent {
        let within = Duration::from_millis(REPLY_WITHIN_MS.start);
        let Some(mut connection) = self.connect(within).await else { return Sent::Never };
        // It is also unknown whether all of it was sent.
        let _ = connection.send(words).await;
        sleep(Duration::from_micros(self.rng.u64(0..3_000))).await;
        self.leave(connection);
        Sent::Lost
    }

    /// Ends its connection by a reset or by a close.
    pub(super) fn disconnect(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.leave(connection);
        }
    }

    fn leave(&mut self, connection: Connection) {
        if self.rng.bool() {
            connection.reset();
        }
    }

    async fn connect(&mut self, within: Duration) -> Option<Connection> {
        if let Some(connection) = self.connection.take() {
            return Some(connection);
        }
        let address = self.addresses.get(self.home)?;
        let opened = timeout(within, Connection::open(address, self.is_resp3)).await;
        opened.ok().and_then(Result::ok)
    }
}
