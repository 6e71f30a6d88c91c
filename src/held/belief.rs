//! Until when the holder may rely on a grant.

use std::time::Duration;

use leasehold_lock::{Instant, Renewed, Ttl, safe_deadline};

/// Until when the holder may rely on a grant, with the requests that determine it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Belief {
    extent: Extent,
    /// When the latest request that may have changed the TTL was sent.
    sent: Instant,
}

/// For how long a grant lasts, as far as the requests so far allow.
#[derive(Clone, Copy, Debug)]
struct Extent {
    /// The TTL granted, or the TTL of a later request that may have been granted.
    ttl: Duration,
    /// The TTL that renewals ask for. A store may grant more, even more than its
    /// `maxTTL`.
    asked: Duration,
    safe_deadline: Instant,
}

/// A sent request that may change a grant's TTL.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sending {
    at: Instant,
    asked: Duration,
    before: Extent,
}

impl Belief {
    /// A grant of `ttl` that counts from `since`, for which `asked` was asked.
    pub(super) fn new(since: Instant, ttl: Duration, asked: Duration) -> Self {
        let extent = Extent { ttl, asked, safe_deadline: safe_deadline(since, ttl) };
        Self { extent, sent: since }
    }

    /// The TTL that was granted.
    pub(super) fn ttl(&self) -> Duration {
        self.extent.ttl
    }

    /// The TTL that renewals ask for.
    pub(super) fn asked(&self) -> Duration {
        self.extent.asked
    }

    /// Until when the holder may rely on the grant.
    pub(super) fn safe_deadline(&self) -> Instant {
        self.extent.safe_deadline
    }

    /// A request for the TTL `asked` is sent at `at`. Until it is answered, the belief
    /// is no longer than that allows, and renewals ask for no more.
    pub(super) fn sends(&mut self, at: Instant, asked: Duration) -> Sending {
        let before = self.extent;
        let extent = &mut self.extent;
        self.sent = at;
        extent.safe_deadline =
            extent.safe_deadline.min(safe_deadline(at, asked.max(Ttl::MIN.duration())));
        if asked < extent.asked {
            extent.asked = asked;
            extent.ttl = extent.ttl.min(asked);
        }
        Sending { at, asked, before }
    }

    /// The request was not carried out: the earlier belief is restored, unless another
    /// request was sent since.
    pub(super) fn did_not_happen(&mut self, sending: &Sending) {
        if self.sent == sending.at {
            self.extent = sending.before;
        }
    }

    /// A renewal succeeded. A later request for less may take effect after it.
    pub(super) fn renewed(&mut self, sending: &Sending, renewed: Renewed) {
        let safe_deadline = safe_deadline(renewed.since, renewed.ttl);
        let was_shortened = self.extent.asked < sending.asked.min(sending.before.asked);
        if was_shortened {
            self.extent.ttl = self.extent.ttl.min(renewed.ttl);
            self.extent.safe_deadline = self.extent.safe_deadline.min(safe_deadline);
        } else {
            self.extent = Extent { ttl: renewed.ttl, asked: sending.asked, safe_deadline };
        }
    }

    /// A replay found the grant: `replay` is the belief from its answer alone.
    /// If another request was sent after the replay, that answer does not
    /// lengthen the belief.
    pub(super) fn replayed(&mut self, replay: Self) {
        let mut extent = replay.extent;
        if replay.sent < self.sent {
            extent.ttl = extent.ttl.min(self.extent.ttl);
            extent.safe_deadline = extent.safe_deadline.min(self.extent.safe_deadline);
        }
        *self = Self { extent, sent: replay.sent.max(self.sent) };
    }
}

impl Sending {
    /// When the request was sent.
    pub(super) fn at(&self) -> Instant {
        self.at
    }

    /// The TTL that it asked for.
    pub(super) fn asked(&self) -> Duration {
        self.asked
    }

    /// Whether the request asked for less than renewals did before it.
    pub(super) fn shortens(&self) -> bool {
        self.asked < self.before.asked
    }
}
