"""What the handles of both forms have in common."""

from __future__ import annotations

from ._clock import now
from ._options import Options, in_seconds
from ._rpc import Stubs
from ._term import Term
from .errors import InvalidOption, LeaseholdError
from .fence import fence_key
from .generated import locks_pb2 as pb

LONGEST_SILENCE = 30.0
LATENESS = 10.0


class Grant:
    """A lock that is held. Not bound to a thread or a task."""

    def __init__(self, stubs: Stubs, store: str, options: Options, acquired: pb.LockAcquired, sent: float) -> None:
        self.store = store
        """The name of the lock store."""
        self.namespace = options.namespace
        """The segments of the namespace."""
        self.resource = options.name
        """The name of the lock."""
        self.token = acquired.fencing_token
        """The fencing token, an integer of up to 63 bits; each later grant has a greater one."""
        self.lock_id = acquired.lock_id
        """The proof of ownership; a secret."""
        self.grant_id = acquired.grant_id
        """The public ID of the grant. Empty if the store has none."""
        self._mode = options.mode
        self._term = Term(
            resource=options.name,
            sent=sent,
            waited=in_seconds(acquired.waited),
            ttl=in_seconds(acquired.ttl),
            max_hold=options.max_hold,
            stop_before=options.stop_before,
            on_silence=stubs.fall_silent,
        )
        if not self._term.leaves_time:
            raise InvalidOption("stop_before", f"is not shorter than {self._term.bound}")
        if self._term.has_passed:
            raise LeaseholdError("the lock was received when its time had passed", reason="UNAVAILABLE")

    @property
    def valid_for(self) -> float:
        """Seconds until the work is cancelled unless the lock is confirmed; 0 once it is lost.

        Also 0 after `unlock`. Reads the clock and makes no call.
        """
        return self._term.valid_for

    @property
    def fence_key(self) -> str:
        """The key of this lock's fence: store, namespace and name."""
        return fence_key(self.store, self.resource, self.namespace)

    def check(self) -> None:
        """Raises `LockLost` if `valid_for` is 0. Reads the clock and makes no call."""
        self._term.check()

    @property
    def _question(self) -> pb.CheckLocksRequest:
        ref = pb.LockRef(
            store_name=self.store, resource_id=self.resource, lock_id=self.lock_id, namespace=self.namespace
        )
        return pb.CheckLocksRequest(locks=[ref])

    @property
    def _farewell(self) -> pb.UnlockRequest:
        return pb.UnlockRequest(
            store_name=self.store, resource_id=self.resource, lock_id=self.lock_id, namespace=self.namespace
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.resource!r} token={self.token} valid_for={self.valid_for:.3f}>"


def take_answer(term: Term, sent: float, answer: pb.CheckLocksResponse) -> None:
    """Takes the answer to the question that was sent at `sent`."""
    check = answer.locks[0] if answer.locks else pb.LockCheck()
    if check.HasField("valid_for"):
        term.confirm(sent, in_seconds(check.valid_for))
    else:
        term.lose((check.reason == "LOCK_LOST" and check.cause) or "ended")


class Patience:
    """How long a request for a lock may stay unanswered."""

    def __init__(self, options: Options) -> None:
        wait = 0.0 if options.immediate else options.wait
        self._limit = None if wait is None else wait + LATENESS
        self.sent = now()
        """When the request was sent."""

    @property
    def left(self) -> float:
        """Seconds until the client gives up, unless something is received."""
        if self._limit is None:
            return LONGEST_SILENCE
        return max(0.0, min(LONGEST_SILENCE, self.sent + self._limit - now()))

    def exhausted(self, target: str | None) -> LeaseholdError:
        """The error for it."""
        sidecar = "the sidecar" if target is None else f"the sidecar at {target}"
        passed = now() - self.sent
        return LeaseholdError(
            f"no answer from {sidecar} to a request for a lock after {passed:.0f} s", reason="UNAVAILABLE"
        )
