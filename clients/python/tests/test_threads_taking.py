"""Locks: how locks are taken and released by threads."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from stage import PATIENCE, STORE, Stage, fresh, until
from test_aio_taking import BAD

from leasehold_client import InvalidOption, LeaseholdError, Lock, LockLost, Locks, NotAcquired, _grant, _rpc


def test_a_lock_is_taken_and_released(locks: Locks) -> None:
    name = fresh()
    with locks.lock(name, ttl=30) as lock:
        assert isinstance(lock, Lock)
        assert lock.resource == name
        assert lock.lock_id
        assert lock.grant_id
        assert 20 < lock.valid_for < 30
        lock.check()
        assert lock.wait_lost(0.01) is False
        token = lock.token
    assert lock.valid_for == 0
    assert lock.wait_lost()
    with locks.lock(name) as later:
        assert later.token > token


def test_a_try_of_a_held_lock_gives_nothing(locks: Locks) -> None:
    name = fresh()
    with locks.try_lock(name) as first, locks.try_lock(name) as second:
        assert first is not None
        assert second is None
    with locks.try_lock(name) as third:
        assert third is not None


def test_a_lock_waits_for_its_turn(locks: Locks, stage: Stage) -> None:
    name = fresh()
    order: list[str] = []

    def second() -> None:
        with locks.lock(name, wait=PATIENCE):
            order.append("second")

    with ThreadPoolExecutor() as pool:
        with locks.lock(name):
            waiting = pool.submit(second)
            stage.wait_for_waiters(name, 1)
            order.append("first")
        waiting.result(PATIENCE)
    assert order == ["first", "second"]


def test_a_wait_ends_at_its_limit(locks: Locks) -> None:
    name = fresh()
    with locks.lock(name), pytest.raises(NotAcquired) as refused, locks.lock(name, wait=2):
        pytest.fail("it has the lock")
    assert refused.value.reason == "WAIT_DEADLINE"
    assert str(refused.value) == f"the lock {name!r} was not acquired within 2 s"


def test_a_try_that_may_not_wait_names_the_holder(locks: Locks) -> None:
    name = fresh()
    with locks.lock(name, label="nightly"), pytest.raises(NotAcquired) as refused, locks.lock(name, wait=0):
        pytest.fail("it has the lock")
    assert refused.value.reason == "RESOURCE_LOCKED"
    assert (refused.value.holder or "").endswith("/nightly")


def test_the_label_is_seen_by_inspection(locks: Locks, stage: Stage) -> None:
    name = fresh()
    with locks.lock(name, label="invoice run"):
        (holder,) = stage.holders(name)
    assert holder.rpartition("/")[2] == "invoice run"


def test_namespaces_are_apart(locks: Locks) -> None:
    name = fresh()
    with locks.lock(name, namespace=["shop", "eu"]), locks.try_lock(name) as plain:
        assert plain is not None
        with locks.try_lock(name, namespace=["shop", "eu"]) as again:
            assert again is None


def test_readers_share_a_lock(locks: Locks) -> None:
    name = fresh()
    with locks.lock(name, mode="shared"), locks.try_lock(name, mode="shared") as second:
        assert second is not None
        with locks.try_lock(name) as writer:
            assert writer is None


def test_a_bad_option_is_named(locks: Locks, monkeypatch: pytest.MonkeyPatch) -> None:
    for option, name, options in BAD:
        with pytest.raises(InvalidOption, match=f"^{option} ") as refused:
            locks.lock(name, **options)  # type: ignore[arg-type]
        assert refused.value.option == option
    with pytest.raises(InvalidOption, match=r"^wait .*try_lock"):
        locks.try_lock("x", wait=2)  # type: ignore[call-arg]
    for store in ("", "\ud800", None):
        with pytest.raises(InvalidOption, match=r"^store "):
            Locks(store)  # type: ignore[arg-type]
    monkeypatch.setenv("DAPR_API_TOKEN", "s3cret\n")  # As a mounted secret may be.
    with pytest.raises(InvalidOption, match=r"^DAPR_API_TOKEN .*newline"):
        Locks(STORE)
    monkeypatch.delenv("DAPR_API_TOKEN")
    for address in (
        "sidecar",
        "ftp://sidecar:1",
        "http://",
        "http://sidecar/path",
        "h:",
        "h:x",
        "h:99999",
        "http://h:0",
    ):
        with pytest.raises(InvalidOption, match="address"):
            Locks(STORE, address=address)
    with pytest.raises(LeaseholdError, match="label") as by_sidecar, locks.lock(fresh(), label="x" * 200):
        pytest.fail("it has the lock")
    assert by_sidecar.value.reason == "INVALID_REQUEST"


def test_a_misspelt_call_is_named(locks: Locks) -> None:
    with pytest.raises(TypeError, match=r"^lock\(\) .*'waits'"):
        locks.lock("x", waits=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^try_lock\(\) .*'immediate'"):
        locks.try_lock("x", immediate=True)  # type: ignore[call-arg]
    with pytest.raises(AttributeError, match="with"):
        locks.lock("x").token  # type: ignore[attr-defined]  # noqa: B018


def test_an_http_port_is_named(stage: Stage) -> None:
    address = f"127.0.0.1:{stage.http_port}"
    with Locks(STORE, address=address) as locks:
        with pytest.raises(LeaseholdError, match=rf"^{address} is the sidecar's HTTP port; .*DAPR_GRPC_PORT"):
            locks.lock(fresh()).__enter__()


def test_nobody_at_the_address_is_unavailable() -> None:
    with Locks(STORE, address="127.0.0.1:1") as locks:
        with pytest.raises(
            LeaseholdError, match=r"^no sidecar at 127\.0\.0\.1:1: connection refused; start"
        ) as refused:
            with locks.lock("x"):
                pytest.fail("it has the lock")
    assert refused.value.reason == "UNAVAILABLE"


def test_a_silent_sidecar_is_given_up(own_locks: Locks, own_stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_grant, "LATENESS", 1.0)
    name = fresh()
    with own_locks.lock(name):
        pass
    own_stage.command("stall")
    with pytest.raises(LeaseholdError) as refused, own_locks.try_lock(name, ttl=200):
        pytest.fail("it has an answer")
    assert refused.value.reason == "UNAVAILABLE"
    own_stage.command("heal")
    until(lambda: own_stage.take(name), "the request is withdrawn")


def test_an_unlock_is_idempotent(locks: Locks, stage: Stage) -> None:
    name = fresh()
    with locks.lock(name) as lock:
        lock.unlock()
        assert lock.valid_for == 0
        with pytest.raises(LockLost, match="ended"):
            lock.check()
        assert stage.take(name)
        lock.unlock()
    lock.unlock()


def test_a_repeated_request_id_finds_its_grant(locks: Locks) -> None:
    name, secret = fresh(), fresh("secret")
    with pytest.raises(LockLost) as lost, locks.lock(name, request_id=secret) as first:
        with locks.lock(name, request_id=secret) as second:
            assert second.token == first.token
            assert first.wait_lost(PATIENCE)
            second.check()
    assert lost.value.cause == "ended"


def test_a_lock_is_not_reentrant_by_default(locks: Locks) -> None:
    name = fresh()
    with locks.lock(name), locks.try_lock(name) as inner:
        assert inner is None
    # Both must set it.
    with locks.lock(name, reentrant=True), locks.try_lock(name) as inner:
        assert inner is None
    with locks.lock(name), locks.try_lock(name, reentrant=True) as inner:
        assert inner is None


def test_two_clients_are_never_the_same_owner(locks: Locks, stage: Stage) -> None:
    name = fresh()
    with Locks(STORE, address=stage.address) as other, locks.lock(name, reentrant=True):
        with other.try_lock(name, reentrant=True) as lock:
            assert lock is None


def test_a_reentrant_lock_counts(locks: Locks, stage: Stage) -> None:
    name = fresh()
    with ThreadPoolExecutor() as pool:
        with locks.lock(name, reentrant=True) as outer:
            with locks.lock(name, reentrant=True) as inner, locks.try_lock(name, reentrant=True) as third:
                assert inner is outer
                assert third is outer
            assert not stage.take(name)
            with pytest.raises(InvalidOption, match="mode"), locks.lock(name, reentrant=True, mode="shared"):
                pytest.fail("it has the lock in two modes")

            def other() -> bool:
                with locks.try_lock(name, reentrant=True) as lock:
                    return lock is None

            assert pool.submit(other).result(PATIENCE)
        assert stage.take(name)


def test_the_address_and_token_come_from_the_environment(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(backend, environment={"DAPR_API_TOKEN": "s3cret"})
    try:
        monkeypatch.setenv("DAPR_API_TOKEN", "s3cret")
        for variable, value in [
            ("DAPR_GRPC_PORT", str(stage.grpc_port)),
            ("DAPR_GRPC_ENDPOINT", stage.address),
            ("DAPR_GRPC_ENDPOINT", f"http://{stage.address}"),
        ]:
            with monkeypatch.context() as patch:
                patch.setenv(variable, value)
                with Locks(STORE) as locks, locks.lock(fresh()) as lock:
                    assert lock.token
        with (
            Locks(STORE, address=stage.address, api_token="wrong") as locks,
            pytest.raises(LeaseholdError) as refused,
            locks.lock(fresh()),
        ):
            pytest.fail("it has the lock")
        assert refused.value.reason == "UNAUTHENTICATED"
    finally:
        stage.close()


def test_a_channel_of_the_caller_is_used_and_left_open(stage: Stage) -> None:
    with grpc.insecure_channel(stage.address) as channel:
        for _ in range(2):
            with Locks(STORE, channel=channel) as locks, locks.lock(fresh()) as lock:
                assert lock.token


def test_a_closed_client_ends_its_waits(stage: Stage, locks: Locks) -> None:
    name = fresh()
    closed = Locks(STORE, address=stage.address)

    def wait() -> None:
        with closed.lock(name):
            pytest.fail("it has the lock")

    with ThreadPoolExecutor() as pool, locks.lock(name):
        waiting = pool.submit(wait)
        stage.wait_for_waiters(name, 1)
        closed.close()
        with pytest.raises(LeaseholdError) as refused:
            waiting.result(PATIENCE)
        assert refused.value.reason == "CANCELLED"
        stage.wait_for_waiters(name, 0)


def test_a_close_that_comes_before_the_request_ends_it(
    stage: Stage, locks: Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = fresh()
    start = _rpc.Stubs.lock_stream

    def close_and_start(stubs: _rpc.Stubs, *call: Any) -> Any:
        closed.close()
        return start(stubs, *call)

    with grpc.insecure_channel(stage.address) as channel, locks.lock(name):
        for closed in (Locks(STORE, address=stage.address), Locks(STORE, channel=channel)):
            with monkeypatch.context() as patch:
                patch.setattr(_rpc.Stubs, "lock_stream", close_and_start)
                with pytest.raises(LeaseholdError) as refused, closed.lock(name, wait=PATIENCE):
                    pytest.fail("it has the lock")
            assert refused.value.reason == "CANCELLED"
        stage.wait_for_waiters(name, 0)


def test_many_threads_share_one_client(locks: Locks) -> None:
    name = fresh()
    inside = 0
    mutex = threading.Lock()

    def work(_: int) -> int:
        nonlocal inside
        with locks.lock(name, wait=PATIENCE) as lock:
            with mutex:
                inside += 1
                assert inside == 1
            time.sleep(0.005)
            with mutex:
                inside -= 1
            return lock.token

    with ThreadPoolExecutor(8) as pool:
        tokens = list(pool.map(work, range(24)))
    assert len(set(tokens)) == 24
