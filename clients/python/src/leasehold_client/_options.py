"""The options of a lock, checked before anything is sent."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, TypedDict

from google.protobuf.duration_pb2 import Duration

from .errors import InvalidOption
from .generated import locks_pb2 as pb

Seconds = int | float | timedelta
Mode = Literal["exclusive", "shared"]

_MODES = {"exclusive": pb.LOCK_MODE_EXCLUSIVE, "shared": pb.LOCK_MODE_SHARED}
_LONGEST = 315_576_000_000  # the longest google.protobuf.Duration, in seconds


class LockOptions(TypedDict, total=False):
    """The options of `lock` and `try_lock`. Durations are seconds or `timedelta`s."""

    ttl: Seconds
    """How long the lock lasts when nobody renews it. Default: the store's."""
    mode: Mode
    """`"exclusive"`, or `"shared"` with other readers. Default: `"exclusive"`."""
    namespace: Sequence[str]
    """The segments of the namespace, the outermost first. Default: none."""
    label: str
    """The last part of the holder name, which others can see. Default: none."""
    max_hold: Seconds
    """The lock is released after this long, whatever the app does. Default: no limit."""
    request_id: str
    """A secret; a repeated request with it finds its own grant again. Default: none."""
    stop_before: Seconds
    """How long before the safe deadline the work is cancelled. Default: a tenth of the granted
    TTL or of `max_hold`, whichever is shorter, at most 5 s."""
    reentrant: bool
    """The same task (or its children), or the same thread, may take the lock again. Both calls
    must set this; the inner one's other options have no effect. Default: `False`."""


@dataclass(frozen=True)
class Options:
    """The options of one call."""

    name: str
    wait: float | None
    ttl: float | None
    mode: Mode
    namespace: tuple[str, ...]
    label: str | None
    max_hold: float | None
    request_id: str | None
    stop_before: float | None
    reentrant: bool
    immediate: bool

    @classmethod
    def checked(
        cls,
        call: Literal["lock", "try_lock"],
        name: str,
        /,
        *,
        wait: Seconds | None = None,
        ttl: Seconds | None = None,
        mode: Mode = "exclusive",
        namespace: Sequence[str] = (),
        label: str | None = None,
        max_hold: Seconds | None = None,
        request_id: str | None = None,
        stop_before: Seconds | None = None,
        reentrant: bool = False,
        **unknown: object,
    ) -> Options:
        """The options in seconds, or `InvalidOption`."""
        for keyword in unknown:
            raise TypeError(f"{call}() got an unexpected keyword argument {keyword!r}")
        immediate = call == "try_lock"
        if immediate and wait is not None:
            raise InvalidOption("wait", "is not an option of try_lock, which does not wait; use lock")
        check_name("name", name)
        if mode not in _MODES:
            raise InvalidOption("mode", f"is {mode!r}, not 'exclusive' or 'shared'")
        if isinstance(namespace, str) or not isinstance(namespace, Iterable):
            raise InvalidOption("namespace", f"is {namespace!r}, not a sequence of segments")
        namespace = tuple(namespace)
        for segment in namespace:
            _check_text("namespace", segment, "has a segment that ")
        for option, text in (("label", label), ("request_id", request_id)):
            if text is not None:
                _check_text(option, text)
        limit = _seconds("max_hold", max_hold)
        margin = _seconds("stop_before", stop_before, zero=True)
        if limit is not None and margin is not None and margin >= limit:
            raise InvalidOption("stop_before", f"is not shorter than the max_hold of {limit:g} s")
        return cls(
            name=name,
            wait=_seconds("wait", wait, zero=True),
            ttl=_seconds("ttl", ttl),
            mode=mode,
            namespace=namespace,
            label=label,
            max_hold=limit,
            request_id=request_id,
            stop_before=margin,
            reentrant=reentrant,
            immediate=immediate,
        )

    def request(self, store: str) -> pb.LockRequest:
        """The request for the sidecar."""
        return pb.LockRequest(
            store_name=store,
            resource_id=self.name,
            namespace=self.namespace,
            mode=_MODES[self.mode],
            immediate=self.immediate,
            wait=_duration(self.wait),
            ttl=_duration(self.ttl),
            max_hold=_duration(self.max_hold),
            label=self.label or "",
            request_id=self.request_id or "",
        )


def check_name(option: str, value: object) -> None:
    """Raises `InvalidOption` unless it is a name."""
    if value == "":
        raise InvalidOption(option, "is empty")
    _check_text(option, value)


def _check_text(option: str, value: object, which: str = "") -> None:
    if not isinstance(value, str):
        raise InvalidOption(option, f"{which}is not a string")
    try:
        value.encode()
    except UnicodeEncodeError:
        # Such as `os.fsdecode` makes of a file's name that is not UTF-8.
        raise InvalidOption(option, f"{which}cannot be encoded as UTF-8") from None


def _seconds(option: str, value: Seconds | None, *, zero: bool = False) -> float | None:
    if value is None:
        return None
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    else:
        raise InvalidOption(option, f"is {value!r}, not a number of seconds or a timedelta")
    if not math.isfinite(seconds) or seconds > _LONGEST:
        raise InvalidOption(option, f"is {value!r}, which is too long")
    if seconds < 0 or (seconds == 0 and not zero):
        raise InvalidOption(option, f"is {value!r}, which is not {'at least' if zero else 'above'} 0")
    return seconds


def _duration(seconds: float | None) -> Duration | None:
    if seconds is None:
        return None
    whole, nanos = divmod(round(seconds * 1e9), 10**9)
    return Duration(seconds=whole, nanos=nanos)


def in_seconds(duration: Duration) -> float:
    """A duration of an answer."""
    return duration.seconds + duration.nanos / 1e9
