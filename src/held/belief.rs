//! Until when the holder may believe in a grant.

use std::time::Duration;

use leasehold_lock::{Instant, Renewed, Ttl, safe_deadline};

/// Until when the holder may believe in a grant, and what that rests on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Belief {
    terms: Terms,
    /// When the latest request that may have changed the TTL was sent.
    sent: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Terms {
    /// The TTL granted, or what a request asked for that may have been granted.
    ttl: Duration,
    /// What renewals ask for. A store may grant more, so the TTL that it granted
    /// may be above its `maxTTL`.
    asked: Duration,
    safe_deadline: Instant,
}

/// A request that may change a grant's TTL, as it was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sending {
    at: Instant,
    asked: Duration,
    before: Terms,
}

impl Belief {
    /// A grant of `ttl` that counts from `since`, for which `asked` was asked.
    pub(super) fn new(since: Instant, ttl: Duration, asked: Duration) -> Self {
        let terms = Terms { ttl, asked, safe_deadline: safe_deadline(since, ttl) };
        Self { terms, sent: since }
    }

    /// The TTL that was granted.
    pub(super) fn ttl(&self) -> Duration {
        self.terms.ttl
    }

    /// The TTL that renewals ask for.
    pub(super) fn asked(&self) -> Duration {
        self.terms.asked
    }

    /// Until when the holder may believe in the grant.
    pub(super) fn safe_deadline(&self) -> Instant {
        self.terms.safe_deadline
    }

    /// A request that asks for the TTL `asked` is sent at `at`. Until it is answered,
    /// what it may grant is believed in no longer than that, and no more is asked for.
    pub(super) fn sends(&mut self, at: Instant, asked: Duration) -> Sending {
        let before = self.terms;
        let terms = &mut self.terms;
        self.sent = at;
        terms.safe_deadline =
            terms.safe_deadline.min(safe_deadline(at, asked.max(Ttl::MIN.duration())));
        if asked < terms.asked {
            terms.asked = asked;
            terms.ttl = terms.ttl.min(asked);
        }
        Sending { at, asked, before }
    }

    /// What was sent did not happen: the belief is what it was before, unless something
    /// was sent since.
    pub(super) fn did_not_happen(&mut self, sending: &Sending) {
        if self.sent == sending.at {
            self.terms = sending.before;
        }
    }

    /// A renewal succeeded. What was sent since and asks for less may take effect after it.
    pub(super) fn renewed(&mut self, sending: &Sending, renewed: Renewed) {
        let safe_deadline = safe_deadline(renewed.since, renewed.ttl);
        let was_shortened = self.terms.asked < sending.asked.min(sending.before.asked);
        if was_shortened {
            self.terms.ttl = self.terms.ttl.min(renewed.ttl);
            self.terms.safe_deadline = self.terms.safe_deadline.min(safe_deadline);
        } else {
            self.terms = Terms { ttl: renewed.ttl, asked: sending.asked, safe_deadline };
        }
    }

    /// A replay found the grant: `replay` is what its answer says on its own. If
    /// something was sent after the replay, that answer lengthens nothing.
    pub(super) fn replayed(&mut self, replay: Self) {
        let mut terms = replay.terms;
        if replay.sent < self.sent {
            terms.ttl = terms.ttl.min(self.terms.ttl);
            terms.safe_deadline = terms.safe_deadline.min(self.terms.safe_deadline);
        }
        *self = Self { terms, sent: replay.sent.max(self.sent) };
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
