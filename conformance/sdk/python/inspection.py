"""Reaches leasehold.v1.Inspection over the channel of Dapr's Python SDK. The
checks are those of ../README.md."""

import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
from dapr.clients import DaprClient
from leasehold.v1 import inspection_pb2 as pb
from leasehold.v1 import inspection_pb2_grpc as pb_grpc
from leasehold.v1.locks_pb2 import LOCK_MODE_EXCLUSIVE, LOCK_MODE_SHARED

from locks import CALL_TIMEOUT_S, STORE, STREAM_TIMEOUT_S, Locks, expect_refusal, fresh, info_of, seconds, stream_metadata
from report import Report, expect

INVALID, NOT_FOUND = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND


class Inspector:
    """The stub over the SDK's channel, with this store's name filled in."""

    def __init__(self, client: DaprClient) -> None:
        self._stub = pb_grpc.InspectionStub(client._channel)

    def get(self, resource: str, store: str = STORE, **fields) -> pb.GetLockResponse:
        request = pb.GetLockRequest(store_name=store, resource_id=resource, **fields)
        return self._stub.GetLock(request, timeout=CALL_TIMEOUT_S)

    def list(self, **fields) -> pb.ListLocksResponse:
        return self._stub.ListLocks(pb.ListLocksRequest(store_name=STORE, **fields), timeout=CALL_TIMEOUT_S)

    def waiters(self, resource: str, **fields) -> pb.ListWaitersResponse:
        request = pb.ListWaitersRequest(store_name=STORE, resource_id=resource, **fields)
        return self._stub.ListWaiters(request, timeout=CALL_TIMEOUT_S)

    def end(self, **fields) -> pb.EndLocksResponse:
        return self._stub.EndLocks(pb.EndLocksRequest(store_name=STORE, **fields), timeout=CALL_TIMEOUT_S)

    @contextmanager
    def watch(self, **fields):
        """Yields the events, while the block runs."""
        request = pb.WatchLocksRequest(store_name=STORE, **fields)
        events = self._stub.WatchLocks(request, metadata=stream_metadata(), timeout=STREAM_TIMEOUT_S)
        try:
            yield events
        finally:
            events.cancel()

    def has_watch(self) -> bool:
        try:
            with self.watch(resource_id=fresh()) as events:
                next(events)
        except grpc.RpcError as error:
            return info_of(error).reason != "UNSUPPORTED"
        return True


def pages(call, size: int, **fields) -> Iterator:
    """Asks for page after page, each of `size` at most."""
    token = ""
    while True:
        page = call(page_size=size, page_token=token, **fields)
        yield page
        token = page.next_page_token
        if not token:
            return


def ids(grants) -> list[str]:
    return [grant.grant_id for grant in grants]


def names(states) -> list[str]:
    return sorted(state.resource_id for state in states)


def one_lock(inspector: Inspector, locks: Locks) -> None:
    resource = fresh()
    grant = locks.try_lock(resource, ttl=seconds(20), label="desk")
    lock = inspector.get(resource).lock
    expect("resource and total", (lock.resource_id, lock.grants_total), (resource, 1))
    (held,) = lock.grants
    shown = (held.grant_id, held.holder.rpartition("/")[2], held.mode, held.foreign, held.HasField("since"))
    expect("grant", shown, (grant.grant_id, "desk", LOCK_MODE_EXCLUSIVE, False, True))
    if not 0 < held.remaining.ToTimedelta().total_seconds() < 60:
        raise AssertionError(f"remaining {held.remaining}")
    locks.unlock(resource, grant.lock_id)
    expect("grants of a free one", ids(inspector.get(resource).lock.grants), [])


def readers(inspector: Inspector, locks: Locks) -> None:
    resource = fresh()
    grants = [locks.try_lock(resource, mode=LOCK_MODE_SHARED) for _ in range(3)]
    shown = [page.lock for page in pages(inspector.get, 2, resource=resource)]
    expect("longest page", max(len(lock.grants) for lock in shown), 2)
    expect("grants", sorted(id for lock in shown for id in ids(lock.grants)), sorted(ids(grants)))
    expect("totals", {lock.grants_total for lock in shown}, {3})
    for grant in grants:
        locks.unlock(resource, grant.lock_id)


def queue(inspector: Inspector, locks: Locks) -> None:
    resource = fresh()
    holder = locks.try_lock(resource)
    with ThreadPoolExecutor() as pool:
        waiting = []
        for label in ("first", "second"):
            waiting.append(pool.submit(locks.lock, resource, label=label))
            deadline = time.monotonic() + CALL_TIMEOUT_S / 2
            while inspector.get(resource).waiters < len(waiting):
                if time.monotonic() > deadline:
                    raise AssertionError(f"{label} is not shown as waiting")
                time.sleep(0.02)
        shown = [list(page.waiters) for page in pages(inspector.waiters, 1, resource=resource)]
        locks.unlock(resource, holder.lock_id)
        for call in waiting:
            locks.unlock(resource, call.result().lock_id)
    expect("longest page", max(map(len, shown)), 1)
    order = [(waiter.position, waiter.holder.rpartition("/")[2]) for page in shown for waiter in page]
    expect("queue", order, [(1, "first"), (2, "second")])


@contextmanager
def held(locks: Locks, namespace: list[str], *resources: str):
    """Holds them while the block runs, each labelled with its name."""
    grants = {name: locks.try_lock(name, namespace=namespace, label=name) for name in resources}
    try:
        yield grants
    finally:
        for name, grant in grants.items():
            try:
                locks.unlock(name, grant.lock_id, namespace=namespace)
            except grpc.RpcError:
                pass  # a check has ended it


def listing(inspector: Inspector, locks: Locks) -> None:
    namespace = [fresh()]
    with held(locks, namespace, "a", "b", "c") as grants:
        shown = list(pages(inspector.list, 2, scope=pb.LockScope(namespace=namespace)))
        states = [state for page in shown for state in page.locks]
    expect("longest page", max(len(page.locks) for page in shown), 2)
    # A list is no snapshot: a lock may be listed again where a page ends.
    expect("names", sorted(set(names(states))), ["a", "b", "c"])
    expect("grants", {state.resource_id: ids(state.grants) for state in states}, {n: ids([g]) for n, g in grants.items()})


def scopes(inspector: Inspector, locks: Locks) -> None:
    namespace = [fresh()]
    below = [*namespace, "below"]
    with held(locks, namespace, "a-1", "b-1"), held(locks, below, "a-2"):

        def listed(holder_prefix: str = "", **scope) -> list[str]:
            scope = pb.LockScope(namespace=namespace, **scope)
            return names(inspector.list(scope=scope, holder_prefix=holder_prefix).locks)

        holder = inspector.get("b-1", namespace=namespace).lock.grants[0].holder
        expect("the namespace", listed(), ["a-1", "b-1"])
        expect("with those below", listed(children=True), ["a-1", "a-2", "b-1"])
        expect("a prefix", listed(prefix="a-"), ["a-1"])
        expect("a holder", listed(holder_prefix=holder), ["b-1"])


def next_state(events) -> pb.LockEvent:
    return next(event for event in events if event.HasField("state"))


def until_synced(events) -> dict[str, list[str]]:
    """Folds the events into a table of grant IDs, until all locks were sent."""
    table: dict[str, list[str]] = {}
    for event in events:
        if event.restarted:
            table.clear()
        if event.HasField("state"):
            table[event.state.resource_id] = ids(event.state.grants)
        if event.synced:
            return table
    raise AssertionError("the watch ended")


def watching(inspector: Inspector, locks: Locks) -> None:
    namespace = [fresh()]
    with held(locks, namespace, "a") as grants, inspector.watch(scope=pb.LockScope(namespace=namespace)) as events:
        expect("at first", until_synced(events), {"a": ids([grants["a"]])})
        with held(locks, namespace, "b") as later:
            event = next_state(events)
            expect("a grant", (event.state.resource_id, ids(event.state.grants)), ("b", ids([later["b"]])))
        event = next_state(events)
    expect("an end", (event.state.resource_id, ids(event.state.grants)), ("b", []))
    expect("what ended", ids(end.grant for end in event.ended), ids([later["b"]]))
    # Not every store can report why a grant ended.
    if event.ended[0].cause not in (pb.END_CAUSE_RELEASED, pb.END_CAUSE_UNKNOWN):
        raise AssertionError(f"the cause is {event.ended[0].cause}")


def watching_one(inspector: Inspector, locks: Locks) -> None:
    namespace = [fresh()]
    with inspector.watch(resource_id="a", namespace=namespace) as events:
        until_synced(events)
        with held(locks, namespace, "b"), held(locks, namespace, "a") as grants:
            event = next_state(events)
    expect("a grant", (event.state.resource_id, ids(event.state.grants)), ("a", ids([grants["a"]])))


def dry_run(inspector: Inspector, locks: Locks) -> None:
    namespace = [fresh()]
    with held(locks, namespace, "a", "b") as grants:
        answer = inspector.end(scope=pb.LockScope(namespace=namespace), dry_run=True)
        expect("what would be ended", (names(answer.ended), answer.more), (["a", "b"], False))
        for name, grant in grants.items():
            locks.unlock(name, grant.lock_id, namespace=namespace)


def ending_a_scope(inspector: Inspector, locks: Locks) -> None:
    namespace = [fresh()]
    scope = pb.LockScope(namespace=namespace, prefix="a")
    with held(locks, namespace, "a", "b") as grants:
        answer = inspector.end(scope=scope, reason="a check of the SDKs")
        expect("what was ended", [(s.resource_id, ids(s.grants)) for s in answer.ended], [("a", ids([grants["a"]]))])
        lost = grants["a"].lock_id
        expect_refusal(
            lambda: locks.unlock("a", lost, namespace=namespace), grpc.StatusCode.ABORTED, "LOCK_LOST", "forced"
        )
        expect("what is left to end", names(inspector.end(scope=scope).ended), [])
        locks.unlock("b", grants["b"].lock_id, namespace=namespace)


def ending_a_grant(inspector: Inspector, locks: Locks) -> None:
    resource = fresh()
    former = locks.try_lock(resource)
    (ended,) = inspector.end(resource_id=resource, grant_id=former.grant_id).ended
    expect("what was ended", ids(ended.grants), ids([former]))
    successor = locks.try_lock(resource)
    expect_refusal(
        lambda: inspector.end(resource_id=resource, grant_id=former.grant_id), NOT_FOUND, "LOCK_NOT_FOUND"
    )
    locks.unlock(resource, successor.lock_id)


def everything(inspector: Inspector, _: Locks) -> None:
    # A dry run, so that no locks of others end if the sidecar accepts it.
    call = lambda: inspector.end(scope=pb.LockScope(children=True), dry_run=True)  # noqa: E731
    expect_refusal(call, INVALID, "INVALID_REQUEST")


def no_such_store(inspector: Inspector, _: Locks) -> None:
    expect_refusal(lambda: inspector.get("r", store="nowhere"), NOT_FOUND, "STORE_NOT_FOUND")


CHECKS = {
    "a held lock is shown with its grant, a free one without": one_lock,
    "the grants of a shared lock are read in pages": readers,
    "those who wait are read in their order, in pages": queue,
    "what is held is listed in pages": listing,
    "a scope chooses by namespace, with those below, by prefix and by holder": scopes,
    "a watch sends what is held, and then each change": watching,
    "a watch of one resource shows no other": watching_one,
    "a dry run shows what would be ended, and ends nothing": dry_run,
    "the locks of a scope are ended, and their holders lose them": ending_a_scope,
    "a grant is ended by its ID, and its successor is not": ending_a_grant,
    "to end everything must be asked for as such": everything,
    "a store that does not exist is refused": no_such_store,
}
NEED_WATCH = (watching, watching_one)


def main() -> int:
    report = Report("python inspection")
    with DaprClient() as client:
        inspector, locks = Inspector(client), Locks(client)
        has_watch = inspector.has_watch()
        for sentence, body in CHECKS.items():
            if body in NEED_WATCH and not has_watch:
                report.ignore(sentence, "the store has no WATCH: it answers UNSUPPORTED")
            else:
                report.check(sentence, lambda: body(inspector, locks))
    return report.close()


if __name__ == "__main__":
    sys.exit(main())
