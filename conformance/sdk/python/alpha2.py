"""Reaches alpha2, leasehold.v1.Locks, over the channel of Dapr's Python SDK.
The checks are those of ../README.md."""

import sys
import threading
import time

import grpc
from dapr.clients import DaprClient

from locks import Locks, eventually_locks, expect_end, expect_refusal, expect_wait_deadline, fresh, seconds
from report import Report
from terms import TERMS


def lock_and_unlock(locks: Locks) -> None:
    resource = fresh()
    grant = locks.try_lock(resource, ttl=seconds(20))
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
    expect_wait_deadline(lambda: locks.lock(resource, timeout_s=1))
    # Long enough for the next call to be in the queue by then.
    release = threading.Timer(3, locks.unlock, (resource, first.lock_id))
    release.start()
    second = locks.lock(resource)
    release.join()
    if second.waited.ToTimedelta().total_seconds() < 0.2 or second.fencing_token <= first.fencing_token:
        raise AssertionError(f"granted {second} after {first}")
    locks.unlock(resource, second.lock_id)


def renewal(locks: Locks) -> None:
    resource = fresh()
    grant = locks.try_lock(resource, ttl=seconds(6))
    time.sleep(grant.ttl.seconds + 2)
    expect_refusal(lambda: locks.try_lock(resource), grpc.StatusCode.ABORTED, "RESOURCE_LOCKED")
    locks.unlock(resource, grant.lock_id)


def own_renewal(locks: Locks) -> None:
    resource = fresh()
    grant = locks.try_lock(resource, ttl=seconds(6), no_renewal=True)
    renewed = locks.renew(resource, grant.lock_id, ttl=seconds(20))
    if renewed.ttl.seconds < 20:
        raise AssertionError(f"renewed {renewed}")
    time.sleep(grant.ttl.seconds + 2)
    expect_refusal(lambda: locks.try_lock(resource), grpc.StatusCode.ABORTED, "RESOURCE_LOCKED")
    locks.unlock(resource, grant.lock_id)
    lapsing = locks.try_lock(resource, ttl=seconds(2), no_renewal=True)
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
        expect_end(stream)


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
    "a waiting call is granted when the holder unlocks, or ends at its deadline": waiting,
    "the sidecar renews a lock past its TTL": renewal,
    "an app renews its own lock, and one that does not loses it": own_renewal,
    "the end of a stream releases its lock": stream_is_the_lock,
    "an unlock ends the stream without an error": unlock_ends_the_stream,
    "a forced unlock ends the stream and fails the holder's later call": force,
    "a store that does not exist is refused": no_such_store,
}


def main() -> int:
    report = Report("python alpha2")
    with DaprClient() as client:
        locks = Locks(client)
        for sentence, body in (CHECKS | TERMS).items():
            report.check(sentence, lambda: body(locks))
    return report.close()


if __name__ == "__main__":
    sys.exit(main())
