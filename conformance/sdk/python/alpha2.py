"""Reaches alpha2, leasehold.v1.Locks, over the channel of Dapr's Python SDK.
The checks are those of ../README.md."""

import os
import sys
import threading
import time
import uuid
from contextlib import contextmanager

import grpc
from dapr.clients import DaprClient
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import ErrorInfo
from grpc_status import rpc_status
from leasehold.v1 import locks_pb2 as pb
from leasehold.v1 import locks_pb2_grpc as pb_grpc

from report import Report, expect

STORE = os.environ.get("LOCK_STORE", "locks")
CALL_TIMEOUT_S = 10


class Locks:
    """The stub over the SDK's channel, with this store's name filled in."""

    def __init__(self, client: DaprClient) -> None:
        # The SDK has no public way to its channel. Its interceptors send the
        # API token with unary calls only, so the stream gets it from here.
        self._stub = pb_grpc.LocksStub(client._channel)
        token = os.environ.get("DAPR_API_TOKEN")
        self._stream_metadata = [("dapr-api-token", token)] if token else None

    def lock(self, resource: str, timeout_s: float = CALL_TIMEOUT_S, store: str = STORE, **fields) -> pb.LockResponse:
        return self._stub.Lock(pb.LockRequest(store_name=store, resource_id=resource, **fields), timeout=timeout_s)

    def try_lock(self, resource: str, **fields) -> pb.LockResponse:
        return self.lock(resource, immediate=True, **fields)

    def renew(self, resource: str, lock_id: str, ttl_s: int) -> pb.RenewLockResponse:
        request = pb.RenewLockRequest(store_name=STORE, resource_id=resource, lock_id=lock_id, ttl=Duration(seconds=ttl_s))
        return self._stub.RenewLock(request, timeout=CALL_TIMEOUT_S)

    def unlock(self, resource: str, lock_id: str) -> None:
        self._stub.Unlock(
            pb.UnlockRequest(store_name=STORE, resource_id=resource, lock_id=lock_id), timeout=CALL_TIMEOUT_S
        )

    def force(self, resource: str) -> None:
        self._stub.ForceUnlock(pb.ForceUnlockRequest(store_name=STORE, resource_id=resource), timeout=CALL_TIMEOUT_S)

    @contextmanager
    def stream(self, resource: str):
        """Holds the resource while the block runs; yields the grant and the stream."""
        request = pb.LockRequest(store_name=STORE, resource_id=resource)
        stream = self._stub.LockStream(request, metadata=self._stream_metadata, timeout=60)
        try:
            for message in stream:
                if message.HasField("lock_acquired"):
                    yield message.lock_acquired, stream
                    return
            raise AssertionError("the stream ended without a grant")
        finally:
            stream.cancel()


def fresh() -> str:
    return f"python-{uuid.uuid4()}"


def info_of(error: grpc.RpcError) -> ErrorInfo:
    info = ErrorInfo()
    status = rpc_status.from_call(error)
    for detail in status.details if status else ():
        if detail.Unpack(info):
            break
    return info


def expect_refusal(call, code: grpc.StatusCode, reason: str, cause: str = "") -> None:
    try:
        call()
    except grpc.RpcError as error:
        info = info_of(error)
        expect("refusal", (error.code(), info.reason, info.metadata.get("cause", "")), (code, reason, cause))
        return
    raise AssertionError("it was answered instead of refused")


def eventually_locks(locks: Locks, resource: str, limit_s: float) -> pb.LockResponse:
    deadline = time.monotonic() + limit_s
    while True:
        try:
            return locks.try_lock(resource)
        except grpc.RpcError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def lock_and_unlock(locks: Locks) -> None:
    resource = fresh()
    grant = locks.try_lock(resource, ttl=Duration(seconds=20))
    if not grant.lock_id or grant.fencing_token <= 0 or grant.ttl.seconds < 20:
        raise AssertionError(f"granted {grant}")
    expect_refusal(lambda: locks.try_lock(resource), grpc.StatusCode.ABORTED, "RESOURCE_LOCKED")
    locks.unlock(resource, grant.lock_id)
    expect_refusal(lambda: locks.unlock(resource, grant.lock_id), grpc.StatusCode.NOT_FOUND, "LOCK_NOT_FOUND")
    again = locks.try_lock(resource)
    if again.fencing_token <= grant.fencing_token:
        raise AssertionError(f"token {again.fencing_token} after {grant.fencing_token}")
    locks.unlock(resource, again.lock_id)


def waiting(locks: Locks) -> None:
    resource = fresh()
    first = locks.try_lock(resource)
    expect_refusal(lambda: locks.lock(resource, timeout_s=0.5), grpc.StatusCode.DEADLINE_EXCEEDED, "WAIT_DEADLINE")
    release = threading.Timer(0.3, locks.unlock, (resource, first.lock_id))
    release.start()
    second = locks.lock(resource)
    release.join()
    if second.waited.ToTimedelta().total_seconds() < 0.2 or second.fencing_token <= first.fencing_token:
        raise AssertionError(f"granted {second} after {first}")
    locks.unlock(resource, second.lock_id)


def renewal(locks: Locks) -> None:
    resource = fresh()
    grant = locks.try_lock(resource, ttl=Duration(seconds=2))
    time.sleep(grant.ttl.seconds + 2)
    expect_refusal(lambda: locks.try_lock(resource), grpc.StatusCode.ABORTED, "RESOURCE_LOCKED")
    locks.unlock(resource, grant.lock_id)


def own_renewal(locks: Locks) -> None:
    resource = fresh()
    grant = locks.try_lock(resource, ttl=Duration(seconds=2), no_renewal=True)
    renewed = locks.renew(resource, grant.lock_id, 20)
    if renewed.ttl.seconds < 20:
        raise AssertionError(f"renewed {renewed}")
    time.sleep(grant.ttl.seconds + 2)
    expect_refusal(lambda: locks.try_lock(resource), grpc.StatusCode.ABORTED, "RESOURCE_LOCKED")
    locks.unlock(resource, grant.lock_id)
    lapsing = locks.try_lock(resource, ttl=Duration(seconds=2), no_renewal=True)
    locks.unlock(resource, eventually_locks(locks, resource, 10).lock_id)
    if not lapsing.lock_id:
        raise AssertionError("no lock ID")


def stream_is_the_lock(locks: Locks) -> None:
    resource = fresh()
    with locks.stream(resource) as (grant, _):
        if grant.fencing_token <= 0:
            raise AssertionError(f"granted {grant}")
        expect_refusal(lambda: locks.try_lock(resource), grpc.StatusCode.ABORTED, "RESOURCE_LOCKED")
    locks.unlock(resource, eventually_locks(locks, resource, 5).lock_id)


def unlock_ends_the_stream(locks: Locks) -> None:
    resource = fresh()
    with locks.stream(resource) as (grant, stream):
        locks.unlock(resource, grant.lock_id)
        for message in stream:
            if not message.HasField("ping"):
                raise AssertionError(f"the stream went on with {message}")


def force(locks: Locks) -> None:
    resource = fresh()
    with locks.stream(resource) as (_, stream):
        locks.force(resource)
        expect_refusal(lambda: list(stream), grpc.StatusCode.ABORTED, "LOCK_LOST", "forced")
    grant = locks.try_lock(resource)
    locks.force(resource)
    expect_refusal(lambda: locks.unlock(resource, grant.lock_id), grpc.StatusCode.ABORTED, "LOCK_LOST", "forced")
    expect_refusal(lambda: locks.force(resource), grpc.StatusCode.NOT_FOUND, "LOCK_NOT_FOUND")


def no_such_store(locks: Locks) -> None:
    expect_refusal(lambda: locks.lock("r", store="nowhere"), grpc.StatusCode.NOT_FOUND, "STORE_NOT_FOUND")


CHECKS = {
    "a lock is granted with a rising token, refused to others, and unlocked once": lock_and_unlock,
    "a waiting call is granted when the holder unlocks, or told of its deadline": waiting,
    "the sidecar renews a lock past its TTL": renewal,
    "an app renews its own lock, and one that does not loses it": own_renewal,
    "the end of a stream releases its lock": stream_is_the_lock,
    "an unlock ends the stream without an error": unlock_ends_the_stream,
    "a forced unlock is told on the stream and to the holder's later call": force,
    "a store that does not exist is refused": no_such_store,
}


def main() -> int:
    report = Report("python alpha2")
    with DaprClient() as client:
        locks = Locks(client)
        for sentence, body in CHECKS.items():
            report.check(sentence, lambda: body(locks))
    return report.close()


if __name__ == "__main__":
    sys.exit(main())
