"""For how long a client may treat one lock as held.

All arithmetic of the local deadline is here, without any input or output, and both forms of
the library use it.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable

from ._clock import now
from .errors import LockLost

LONGEST_STOP_BEFORE = 5.0
LONGEST_ANSWER = 5.0


def drift_allowance(ttl: float) -> float:
    """What is taken off a TTL, because two clocks may differ."""
    return ttl / 20 + 0.020


class Term:
    """The state of one lock: until when it is valid, or why it is lost.

    Safe to use from several threads. Once a lock is lost it stays lost, for the first cause.
    """

    def __init__(
        self,
        *,
        resource: str,
        sent: float,
        waited: float,
        ttl: float,
        max_hold: float | None,
        stop_before: float | None,
        on_silence: Callable[[], None] = lambda: None,
    ) -> None:
        self.ttl = ttl
        self._on_silence = on_silence
        self._longest = ttl - drift_allowance(ttl)
        self._limit = math.inf
        if max_hold is not None:
            self._longest = min(self._longest, max_hold)
            self._limit = sent + waited + max_hold
        if stop_before is None:
            stop_before = min(ttl / 10, (math.inf if max_hold is None else max_hold) / 10, LONGEST_STOP_BEFORE)
        self._stop_before = stop_before
        self._resource = resource
        self._safe_deadline = sent + waited + self._longest
        self._cause: str | None = None
        self._closed = False
        self._process = os.getpid()
        self._mutex = threading.Lock()

    @property
    def leaves_time(self) -> bool:
        """Whether `stop_before` leaves any time for the work."""
        return self._stop_before < self._longest

    @property
    def bound(self) -> str:
        """What `stop_before` must be shorter than. That it is shorter than `max_hold` was checked before."""
        return f"the granted TTL of {self.ttl:g} s less the drift allowance of {drift_allowance(self.ttl):g} s"

    @property
    def has_passed(self) -> bool:
        """Whether the safe deadline has passed, without `stop_before`."""
        return now() >= self._safe_deadline

    @property
    def interval(self) -> float:
        """How long after a question the next one is asked."""
        return self.ttl / 6

    @property
    def answer_limit(self) -> float:
        """How long an answer may take."""
        return min(self.ttl / 6, LONGEST_ANSWER)

    @property
    def retry_interval(self) -> float:
        """How long after a question that failed the next one is asked, at least."""
        return self.ttl / 60

    # `valid_for` and `check` take no mutex, so that they work in a child that was forked while
    # another thread had it. `_look` alone writes there, and what it writes stays.

    @property
    def valid_for(self) -> float:
        """Seconds until the lock counts as lost; 0 once it is lost or released."""
        return self._look()

    @property
    def loss(self) -> LockLost | None:
        """Why the lock is lost, if it is: a new error each time. A release is not a loss."""
        with self._mutex:
            self._look()
            return None if self._closed or self._cause is None else LockLost(self._resource, self._cause)

    def check(self) -> None:
        """Raises `LockLost` if the lock is lost or released."""
        if self._look() == 0 and self._cause is not None:
            raise LockLost(self._resource, self._cause)

    def confirm(self, sent: float, valid_for: float) -> None:
        """Takes an answer to the question that was sent at `sent`."""
        with self._mutex:
            if self._look() > 0:
                self._safe_deadline = min(sent + valid_for, self._limit)

    def lose(self, cause: str) -> None:
        """Records that the lock is lost. Without effect if it is lost or released already."""
        with self._mutex:
            self._look()
            if self._cause is None:
                self._cause = cause

    def close(self) -> bool:
        """Ends the validity, because the lock is to be released now.

        Returns whether the caller is to release it: false if it is lost or released already.
        """
        with self._mutex:
            self._look()
            if self._cause is not None:
                return False
            self._cause = "ended"
            self._closed = True
            return True

    def _look(self) -> float:
        if self._cause is not None:
            return 0.0
        if os.getpid() != self._process:
            self._cause = "disconnected"  # Nothing watches the lock in a forked child.
            return 0.0
        deadline = self._safe_deadline
        left = deadline - self._stop_before - now()
        if left > 0:
            return left
        # The sidecar counts `max_hold` in its answers, by a clock that may differ from this one.
        by_max_hold = deadline >= self._limit - drift_allowance(self.ttl)
        if not by_max_hold:
            self._on_silence()  # Before anybody sees the loss.
        self._cause = "max_hold" if by_max_hold else "unconfirmed"
        return 0.0
