//! What a connection does with the messages that it receives.

use std::sync::Arc;

use ::redis::Value;
use leasehold_lock::ResourceId;

use super::{keys::Slot, member::Member, notice::Notice, waiters::Waiters};

/// The prefix of the names of processes' channels.
const CHANNEL: &str = "\x01n";

/// Whom the messages of a connection are for.
#[derive(Clone, Default)]
pub(crate) struct Hearing {
    waiters: Option<Arc<Waiters>>,
    member: Option<Arc<Member>>,
}

impl Hearing {
    /// For these waiters.
    pub(crate) fn of(waiters: Arc<Waiters>) -> Self {
        Self { waiters: Some(waiters), member: None }
    }

    /// The same over the connection to a node of a Cluster. All nodes deliver all messages, so
    /// each counts over one connection only: that to the node that has its resource's slot.
    pub(super) fn at(&self, member: Arc<Member>) -> Self {
        Self { waiters: self.waiters.clone(), member: Some(member) }
    }

    /// The channel to subscribe to, if there is one.
    pub(super) fn channel(&self) -> Option<String> {
        let waiters = self.waiters.as_ref()?;
        Some(format!("{CHANNEL}{}", waiters.process()))
    }

    /// Handles a message.
    pub(crate) fn heard(&self, data: &[Value]) {
        let [Value::BulkString(_), Value::BulkString(message)] = data else { return };
        let notice = std::str::from_utf8(message).ok().and_then(Notice::read);
        if let (Some(waiters), Some(notice)) = (&self.waiters, notice)
            && self.counts(&notice)
        {
            waiters.handle(&notice);
        }
    }

    fn counts(&self, notice: &Notice<'_>) -> bool {
        let Some(member) = &self.member else { return true };
        ResourceId::new(notice.resource()).is_ok_and(|it| member.owns(Slot::of(&it)))
    }
}
