"""leasehold.v1.Locks over the channel of Dapr's Python SDK, and what the checks
of both its services share."""

import os
import time
import uuid
from collections.abc import Iterable
from contextlib import contextmanager
from datetime import timedelta

import grpc
from dapr.clients import DaprClient
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import ErrorInfo
from grpc_status import rpc_status
from leasehold.v1 import locks_pb2 as pb
from leasehold.v1 import locks_pb2_grpc as pb_grpc

from report import expect

STORE = os.environ.get("LOCK_STORE", "locks")
CALL_TIMEOUT_S = 10
STREAM_TIMEOUT_S = 60

# How many waits are tried; one must end with WAIT_DEADLINE.
WAITS_MAX = 5


def stream_metadata() -> list[tuple[str, str]] | None:
    """The API token: the SDK's interceptors send it with unary calls only."""
    token = os.environ.get("DAPR_API_TOKEN")
    return [("dapr-api-token", token)] if token else None


class Locks:
    """The stub over the SDK's channel, with this store's name filled in."""

    def __init__(self, client: DaprClient) -> None:
        # The SDK has no public way to its channel.
        self._stub = pb_grpc.LocksStub(client._channel)

    def lock(self, resource: str, timeout_s: float = CALL_TIMEOUT_S, store: str = STORE, **fields) -> pb.LockResponse:
        return self._stub.Lock(pb.LockRequest(store_name=store, resource_id=resource, **fields), timeout=timeout_s)

    def try_lock(self, resource: str, **fields) -> pb.LockResponse:
        return self.lock(resource, immediate=True, **fields)

    def renew(self, resource: str, lock_id: str, **fields) -> pb.RenewLockResponse:
        request = pb.RenewLockRequest(store_name=STORE, resource_id=resource, lock_id=lock_id, **fields)
        return self._stub.RenewLock(request, timeout=CALL_TIMEOUT_S)

    def unlock(self, resource: str, lock_id: str, **fields) -> None:
        request = pb.UnlockRequest(store_name=STORE, resource_id=resource, lock_id=lock_id, **fields)
        self._stub.Unlock(request, timeout=CALL_TIMEOUT_S)

    def force(self, resource: str, **fields) -> None:
        request = pb.ForceUnlockRequest(store_name=STORE, resource_id=resource, **fields)
        self._stub.ForceUnlock(request, timeout=CALL_TIMEOUT_S)

    def check(self, *locks: pb.LockRef) -> list[pb.LockCheck]:
        return list(self._stub.CheckLocks(pb.CheckLocksRequest(locks=locks), timeout=CALL_TIMEOUT_S).locks)

    def keep_alive(self, requests: Iterable[pb.LockKeepAliveRequest]):
        return self._stub.LockKeepAlive(requests, metadata=stream_metadata(), timeout=STREAM_TIMEOUT_S)

    @contextmanager
    def stream(self, resource: str, **fields):
        """Holds the resource while the block runs; yields the grant and the stream."""
        request = pb.LockRequest(store_name=STORE, resource_id=resource, **fields)
        stream = self._stub.LockStream(request, metadata=stream_metadata(), timeout=STREAM_TIMEOUT_S)
        try:
            for message in stream:
                if message.HasField("lock_acquired"):
                    yield message.lock_acquired, stream
                    return
            raise AssertionError("the stream ended without a grant")
        finally:
            stream.cancel()


def seconds(count: float) -> Duration:
    duration = Duration()
    duration.FromTimedelta(timedelta(seconds=count))
    return duration


def expect_end(stream) -> None:
    """Reads a lock's stream to its end, which raises if it is an error."""
    for message in stream:
        if not message.HasField("ping"):
            raise AssertionError(f"the stream went on with {message}")


def fresh() -> str:
    return f"python-{uuid.uuid4()}"


def info_of(error: grpc.RpcError) -> ErrorInfo:
    info = ErrorInfo()
    status = rpc_status.from_call(error)
    for detail in status.details if status else ():
        if detail.Unpack(info):
            break
    return info


def refusal(call) -> tuple[grpc.StatusCode, str, str]:
    """The code, reason and cause with which the call is refused."""
    try:
        call()
    except grpc.RpcError as error:
        info = info_of(error)
        return error.code(), info.reason, info.metadata.get("cause", "")
    raise AssertionError("it was answered instead of refused")


def expect_refusal(call, code: grpc.StatusCode, reason: str, cause: str = "") -> None:
    expect("refusal", refusal(call), (code, reason, cause))


def expect_wait_deadline(wait) -> None:
    """On a busy machine the client may end a call before the answer arrives, or its outcome is unknown."""
    deadline = grpc.StatusCode.DEADLINE_EXCEEDED
    for _ in range(WAITS_MAX):
        ended = refusal(wait)
        if ended not in ((deadline, "", ""), (grpc.StatusCode.UNKNOWN, "OUTCOME_UNKNOWN", "")):
            break
    expect("end of the wait", ended, (deadline, "WAIT_DEADLINE", ""))


def eventually_locks(locks: Locks, resource: str, limit_s: float) -> pb.LockResponse:
    deadline = time.monotonic() + limit_s
    while True:
        try:
            return locks.try_lock(resource)
        except grpc.RpcError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
