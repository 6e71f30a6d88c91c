"""The errors that this library raises. All derive from `LeaseholdError`."""

from __future__ import annotations


class LeaseholdError(Exception):
    """A call failed.

    `reason` is the reason of the sidecar's `google.rpc.ErrorInfo`, such as
    `STORE_NOT_FOUND`, else the name of the gRPC code, such as `UNAVAILABLE`.
    """

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class InvalidOption(LeaseholdError, ValueError):
    """An option cannot be used. Nothing was sent, or what was granted is released.

    `option` is its name; `reason` is `INVALID_REQUEST`.
    """

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(f"{option} {problem}", reason="INVALID_REQUEST")
        self.option = option


class NotAcquired(LeaseholdError):
    """Somebody else had the lock until the wait ended.

    `reason` is `WAIT_DEADLINE`, or `RESOURCE_LOCKED` for a wait of 0. `holder` is who
    has the lock, if the sidecar named it: `APP/INSTANCE` or `APP/INSTANCE/LABEL`.
    """

    def __init__(self, message: str, *, reason: str, holder: str | None) -> None:
        super().__init__(message, reason=reason)
        self.holder = holder


class LockLost(LeaseholdError):
    """The lock is no longer held, although its work had not ended.

    `reason` is `LOCK_LOST`. `resource` is the lock's name. `cause` is one of `expired`,
    `forced`, `unreachable`, `max_hold`, `unhealthy`, `shutting_down`, `ended`,
    `disconnected` and `unconfirmed`; a newer sidecar may report others.
    """

    def __init__(self, resource: str, cause: str) -> None:
        super().__init__(f"the lock {resource!r} is lost: {cause}", reason="LOCK_LOST")
        self.resource = resource
        self.cause = cause

    @staticmethod
    def attached_to(error: BaseException) -> LockLost | None:
        """The loss that is attached to an error of the work, if there is one.

        An error that the work raises while the lock is lost is reported as it is. The loss
        is the last of its causes and contexts.
        """
        last = _last_context(error)
        return last if isinstance(last, LockLost) else None

    def _attach_to(self, error: BaseException) -> None:
        last = _last_context(error)
        if last is not self:
            last.__context__ = self
            error.add_note(str(self))


def _last_context(error: BaseException) -> BaseException:
    seen = {id(error)}
    while True:
        before = error.__cause__ or error.__context__
        if before is None or id(before) in seen:
            return error
        seen.add(id(before))
        error = before


class StaleToken(LeaseholdError):
    """A fence has seen a greater token: a later holder of the lock has written already.

    `reason` is `STALE_TOKEN`. `token` is the refused one; `seen` is the greater one, if the
    fence reported it.
    """

    def __init__(self, key: str, token: int, seen: int | None = None) -> None:
        more = "" if seen is None else f": it has seen {seen}"
        super().__init__(f"the fence {key!r} refuses the token {token}{more}", reason="STALE_TOKEN")
        self.token = token
        self.seen = seen
