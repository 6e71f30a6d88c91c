"""The three calls of `leasehold.v1.Locks` that this library makes, and how they fail."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from ._address import Address, Metadata, metadata
from .errors import LeaseholdError, LockLost, NotAcquired
from .generated import locks_pb2 as pb
from .generated.status_pb2 import ErrorInfo, Status

UNLOCK_LIMIT = 5.0
_SERVICE = "/leasehold.v1.Locks/"
_DETAILS_KEY = "grpc-status-details-bin"
_INFO_TYPE = "type.googleapis.com/google.rpc.ErrorInfo"


class Stubs:
    """The calls over one channel of `grpc` or `grpc.aio`."""

    def __init__(self, channel: Any, target: str | None = None) -> None:
        self.channel = channel
        self.silent = False
        """Whether a call had no answer, so that later ones use another connection."""
        self.target = target
        """The sidecar's address; None for a channel of the caller's."""
        self._streams: set[Any] = set()
        self._closed = False
        self._lock_stream = channel.unary_stream(
            _SERVICE + "LockStream",
            request_serializer=pb.LockRequest.SerializeToString,
            response_deserializer=pb.LockServerStream.FromString,
        )
        self.check_locks = channel.unary_unary(
            _SERVICE + "CheckLocks",
            request_serializer=pb.CheckLocksRequest.SerializeToString,
            response_deserializer=pb.CheckLocksResponse.FromString,
        )
        self.unlock = channel.unary_unary(
            _SERVICE + "Unlock",
            request_serializer=pb.UnlockRequest.SerializeToString,
            response_deserializer=pb.UnlockResponse.FromString,
        )

    def lock_stream(self, request: pb.LockRequest, metadata: Metadata) -> Any:
        """Starts a LockStream."""
        try:
            stream = self._lock_stream(request, metadata=metadata)
        except (ValueError, grpc.aio.UsageError) as error:
            raise LeaseholdError("the channel is closed", reason="CANCELLED") from error
        self._streams.add(stream)
        stream.add_done_callback(self._streams.discard)
        if self._closed:  # By another thread, which may not have seen this stream.
            stream.cancel()
        return stream

    def fall_silent(self) -> None:
        """A call had no answer."""
        self.silent = True

    def cancel_streams(self) -> None:
        """Ends all streams, which closing a channel does not do in all versions of gRPC."""
        self._closed = True
        for stream in list(self._streams):
            stream.cancel()


class Connection:
    """How a client reaches its sidecar: by the caller's channel, or by its own of the given kind.

    `kind` is the module `grpc` or `grpc.aio`.
    """

    def __init__(self, kind: Any, channel: Any, address: str | None, api_token: str | None) -> None:
        self.metadata = metadata(api_token)
        self._kind = kind
        self._channel = channel
        self._address = Address.of(address) if channel is None else None
        self._stubs: Stubs | None = None
        self._all: weakref.WeakSet[Stubs] = weakref.WeakSet()
        self._closed = False

    def stubs(self) -> Stubs:
        """The stubs for new calls, on another connection than one that did not answer.

        The calls that are open on the old one stay there, and it is closed with the last of
        them. The caller's channel is kept.
        """
        if self._closed:
            raise LeaseholdError("the client is closed", reason="CANCELLED")
        if self._stubs is None or (self._stubs.silent and self._address is not None):
            if self._address is None:
                self._stubs = Stubs(self._channel, None)
            else:
                self._stubs = Stubs(self._open(self._address), self._address.target)
            self._all.add(self._stubs)
        return self._stubs

    def close(self) -> list[Any]:
        """Ends all streams; returns the channels that are to be closed."""
        self._closed = True
        stubs = list(self._all)
        for each in stubs:
            each.cancel_streams()
        return [] if self._address is None else [each.channel for each in stubs]

    def _open(self, address: Address) -> Any:
        if address.tls:
            credentials = grpc.ssl_channel_credentials()
            return self._kind.secure_channel(address.target, credentials, options=address.channel_options)
        return self._kind.insecure_channel(address.target, options=address.channel_options)


@dataclass(frozen=True)
class Failure:
    """How a call failed."""

    code: str
    message: str
    reason: str = ""
    metadata: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, code: Any, message: str | None, trailers: Iterable[tuple[str, Any]] | None) -> Failure:
        """Of a gRPC code, its message and its trailing metadata."""
        name = getattr(code, "name", "UNKNOWN")
        details = next((value for key, value in trailers or () if key == _DETAILS_KEY), b"")
        try:
            for detail in Status.FromString(details).details:
                if detail.type_url == _INFO_TYPE:
                    info = ErrorInfo.FromString(detail.value)
                    return cls(name, message or "", info.reason, dict(info.metadata))
        except DecodeError:
            pass  # The sidecar did not send it.
        return cls(name, message or "")

    def refusal(self, name: str, wait: float | None, target: str | None) -> LeaseholdError:
        """The error for a lock that was not acquired."""
        reason = self.reason or self.code
        holder = self.metadata.get("holder")
        if reason == "RESOURCE_LOCKED":
            problem = f"is held by {holder}" if holder else "is held, or others wait for it"
            return NotAcquired(f"the lock {name!r} {problem}", reason=reason, holder=holder)
        if reason == "WAIT_DEADLINE":
            limit = "in time" if wait is None else f"within {wait:g} s"
            return NotAcquired(f"the lock {name!r} was not acquired {limit}", reason=reason, holder=holder)
        if self.code == "UNAVAILABLE" and not self.reason:
            return LeaseholdError(self._nobody(target), reason=reason)
        return LeaseholdError(self.message or reason, reason=reason)

    def _nobody(self, target: str | None) -> str:
        problem = "connection refused" if self.message.endswith("Connection refused") else self.message
        if target is None:
            return f'no sidecar: {problem}; start "leasehold sidecar", or check the address of the channel'
        return (
            f'no sidecar at {target}: {problem}; start "leasehold sidecar", '
            "or set address, DAPR_GRPC_ENDPOINT or DAPR_GRPC_PORT"
        )

    def loss_cause(self) -> str:
        """The cause of the loss, for a lock that was held."""
        if self.reason == "LOCK_LOST":
            return self.metadata.get("cause") or "ended"
        return "shutting_down" if self.reason == "SHUTTING_DOWN" else "disconnected"

    def loss_at_unlock(self, resource: str) -> LockLost | None:
        """The loss, if that is why an Unlock was refused."""
        if self.reason == "LOCK_LOST":
            return LockLost(resource, self.loss_cause())
        return LockLost(resource, "ended") if self.reason == "LOCK_NOT_FOUND" else None
