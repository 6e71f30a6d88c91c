"""The checks of alpha2 about the terms of a grant: who shares it, what names it,
how long a call waits for it, how long it is valid, and what ends it."""

import queue
import time

import grpc
from leasehold.v1 import locks_pb2 as pb

from locks import (
    STORE,
    Locks,
    eventually_locks,
    expect_end,
    expect_refusal,
    expect_wait_deadline,
    fresh,
    info_of,
    seconds,
)
from report import expect

ABORTED, NOT_FOUND = grpc.StatusCode.ABORTED, grpc.StatusCode.NOT_FOUND


def sharing(locks: Locks) -> None:
    resource = fresh()
    readers = [locks.try_lock(resource, mode=pb.LOCK_MODE_SHARED) for _ in range(2)]
    for reader in readers:
        expect_refusal(lambda: locks.try_lock(resource), ABORTED, "RESOURCE_LOCKED")
        locks.unlock(resource, reader.lock_id)
    writer = locks.try_lock(resource)
    expect_refusal(lambda: locks.try_lock(resource, mode=pb.LOCK_MODE_SHARED), ABORTED, "RESOURCE_LOCKED")
    locks.unlock(resource, writer.lock_id)


def namespaces(locks: Locks) -> None:
    resource, namespace = fresh(), ["shop", "eu"]
    plain = locks.try_lock(resource)
    named = locks.try_lock(resource, namespace=namespace)
    expect_refusal(lambda: locks.try_lock(resource, namespace=namespace), ABORTED, "RESOURCE_LOCKED")
    locks.unlock(resource, named.lock_id, namespace=namespace)
    expect_refusal(lambda: locks.try_lock(resource), ABORTED, "RESOURCE_LOCKED")
    locks.unlock(resource, plain.lock_id)


def label(locks: Locks) -> None:
    resource = fresh()
    grant = locks.try_lock(resource, label="nightly-import")
    try:
        locks.try_lock(resource)
        raise AssertionError("it was answered instead of refused")
    except grpc.RpcError as refused:
        holder = info_of(refused).metadata.get("holder", "")
    locks.unlock(resource, grant.lock_id)
    expect("last part of the holder", holder.rpartition("/")[2], "nightly-import")


def held_for_a_while(locks: Locks) -> str:
    """A held resource. Each try needs its own: after one that ended late, it is free.
    A call without its own wait would get it in time."""
    resource = fresh()
    locks.try_lock(resource, max_hold=seconds(9))
    return resource


def wait(locks: Locks) -> None:
    expect_wait_deadline(lambda: locks.lock(held_for_a_while(locks), wait=seconds(1)))
    expect_refusal(lambda: locks.lock(held_for_a_while(locks), wait=seconds(0)), ABORTED, "RESOURCE_LOCKED")


def wait_of_a_stream(locks: Locks) -> None:
    def wait_in_vain() -> None:
        with locks.stream(held_for_a_while(locks), wait=seconds(2)):
            pass

    expect_wait_deadline(wait_in_vain)
    resource = fresh()
    with locks.stream(resource, wait=seconds(1)) as (grant, stream):
        time.sleep(2)
        expect_refusal(lambda: locks.try_lock(resource), ABORTED, "RESOURCE_LOCKED")
        locks.unlock(resource, grant.lock_id)
        expect_end(stream)


def validity(locks: Locks) -> None:
    held, lost = fresh(), fresh()
    grant = locks.try_lock(held, ttl=seconds(20))
    gone = locks.try_lock(lost)
    locks.force(lost)
    checks = locks.check(
        pb.LockRef(store_name=STORE, resource_id=held, lock_id=grant.lock_id),
        pb.LockRef(store_name=STORE, resource_id=lost, lock_id=gone.lock_id),
        pb.LockRef(store_name=STORE, resource_id=held, lock_id="made-up"),
        pb.LockRef(store_name="nowhere", resource_id=held, lock_id=grant.lock_id),
    )
    expect(
        "the answer to each",
        [(check.HasField("valid_for"), check.reason, check.cause) for check in checks],
        [(True, "", ""), (False, "LOCK_LOST", "forced"), (False, "NOT_HELD_HERE", ""), (False, "STORE_NOT_FOUND", "")],
    )
    if not 0 < checks[0].valid_for.ToTimedelta().total_seconds() < 20:
        raise AssertionError(f"valid for {checks[0].valid_for}")
    locks.unlock(held, grant.lock_id)


def keep_alive(locks: Locks) -> None:
    resources = [fresh(), fresh()]
    grants = [locks.try_lock(resource, no_renewal=True, ttl=seconds(10)) for resource in resources]
    requests = queue.SimpleQueue()
    answers = locks.keep_alive(iter(requests.get, None))

    def send(number: int, resource: str, lock_id: str) -> None:
        requests.put(
            pb.LockKeepAliveRequest(
                id=number, store_name=STORE, resource_id=resource, lock_id=lock_id, ttl=seconds(20)
            )
        )

    send(7, resources[0], "made-up")
    failed = next(answers)
    expect("failure", (failed.id, failed.reason, failed.held), (7, "LOCK_NOT_FOUND", True))
    for number, (resource, grant) in enumerate(zip(resources, grants)):
        send(number, resource, grant.lock_id)
    renewed = [next(answers), next(answers)]
    expect("renewed", sorted((answer.id, answer.ttl.seconds >= 20) for answer in renewed), [(0, True), (1, True)])
    requests.put(None)
    expect("answers to no request", list(answers), [])
    for resource, grant in zip(resources, grants):
        locks.unlock(resource, grant.lock_id)


def detaching(locks: Locks) -> None:
    resource = fresh()
    with locks.stream(resource) as (grant, stream):
        locks.renew(resource, grant.lock_id, detach=True, ttl=seconds(4))
        expect_end(stream)
    expect_refusal(lambda: locks.try_lock(resource), ABORTED, "RESOURCE_LOCKED")
    locks.unlock(resource, eventually_locks(locks, resource, 15).lock_id)


def later_limit(locks: Locks) -> None:
    resource = fresh()
    grant = locks.try_lock(resource, ttl=seconds(60))
    locks.renew(resource, grant.lock_id, ttl=seconds(60), max_hold=seconds(1))
    locks.unlock(resource, eventually_locks(locks, resource, 15).lock_id)
    expect_refusal(lambda: locks.unlock(resource, grant.lock_id), ABORTED, "LOCK_LOST", "max_hold")


def force_one(locks: Locks) -> None:
    resource = fresh()
    first, second = (locks.try_lock(resource, mode=pb.LOCK_MODE_SHARED) for _ in range(2))
    locks.force(resource, grant_id=first.grant_id, reason="a check of the SDKs")
    expect_refusal(lambda: locks.unlock(resource, first.lock_id), ABORTED, "LOCK_LOST", "forced")
    expect_refusal(lambda: locks.force(resource, grant_id=first.grant_id), NOT_FOUND, "LOCK_NOT_FOUND")
    locks.unlock(resource, second.lock_id)


TERMS = {
    "readers share a lock, and a writer is refused until the last has unlocked": sharing,
    "a resource in a namespace is another than the same name without it": namespaces,
    "a refusal names the holder with its label": label,
    "a wait ends a call that waits, and a wait of zero is a try": wait,
    "a wait ends the waiting of a stream, and not its lock": wait_of_a_stream,
    "a check says for how long a lock is valid, or why it is not": validity,
    "one stream renews many locks, and one that fails does not end it": keep_alive,
    "a detached lock outlives its stream until its TTL": detaching,
    "a limit that is set later ends a lock that the sidecar renews": later_limit,
    "a forced unlock with a grant ID ends that grant and no other": force_one,
}
