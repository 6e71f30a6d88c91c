"""Locks: how locks are lost by threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

import grpc
import pytest
from stage import PATIENCE, STORE, Stage, fresh, until
from test_aio_losing import PINGS_FAIL, STOP_BEFORE, TTL

from leasehold_client import LockLost, Locks


def lose(locks: Locks, how: Callable[[], object], **options: float | None) -> tuple[LockLost, float]:
    """Loses a lock; returns the loss, and how long after `how` the work had ended."""
    with pytest.raises(LockLost) as lost, locks.lock(fresh(), **options) as lock:  # type: ignore[arg-type]
        started = time.monotonic()
        how()
        while time.monotonic() - started < PATIENCE:
            lock.check()
            time.sleep(0.005)
    passed = time.monotonic() - started
    assert lock.valid_for == 0
    return lost.value, passed


def test_max_hold_ends_the_lock(locks: Locks) -> None:
    loss, _ = lose(locks, lambda: None, max_hold=3)
    assert loss.cause == "max_hold"


@pytest.mark.parametrize("stop_before", [None, 0])
def test_max_hold_ends_a_lock_of_a_short_ttl(locks: Locks, stop_before: float | None) -> None:
    started = time.monotonic()
    loss, _ = lose(locks, lambda: None, ttl=9, max_hold=3.5, stop_before=stop_before)
    assert loss.cause == "max_hold"
    assert time.monotonic() - started > 2.5


def test_a_forced_unlock_cancels_the_work(locks: Locks, stage: Stage) -> None:
    name = fresh()
    with pytest.raises(LockLost) as lost, locks.lock(name) as lock:
        stage.force(name)
        assert lock.wait_lost(PATIENCE)
        ended = True
    assert ended
    assert lost.value.cause == "forced"


def test_a_killed_sidecar_cancels_the_work(own_locks: Locks, own_stage: Stage) -> None:
    loss, _ = lose(own_locks, lambda: own_stage.command("kill"))
    assert loss.cause == "disconnected"


def test_a_stopped_sidecar_cancels_the_work(own_locks: Locks, own_stage: Stage) -> None:
    loss, _ = lose(own_locks, lambda: own_stage.command("stop"))
    assert loss.cause == "shutting_down"
    own_stage.command("start")
    with own_locks.lock(fresh(), wait=PATIENCE) as lock:
        assert lock.token


def test_a_suspended_sidecar_cancels_the_work_before_the_deadline(own_locks: Locks, own_stage: Stage) -> None:
    loss, passed = lose(own_locks, lambda: own_stage.command("suspend"), ttl=TTL, stop_before=STOP_BEFORE)
    assert loss.cause == "unconfirmed"
    assert passed < TTL
    own_stage.command("resume")


def test_a_cut_off_sidecar_cancels_the_work_before_the_deadline(own_locks: Locks, own_stage: Stage) -> None:
    loss, passed = lose(own_locks, lambda: own_stage.command("stall"), ttl=TTL, stop_before=STOP_BEFORE)
    assert loss.cause == "unconfirmed"
    assert passed < TTL


def test_a_dark_connection_is_replaced(own_locks: Locks, own_stage: Stage) -> None:
    with pytest.raises(LockLost, match="disconnected"), own_locks.lock(fresh(), ttl=60) as long:
        loss, _ = lose(own_locks, lambda: own_stage.command("vanish"), ttl=TTL, stop_before=STOP_BEFORE)
        assert loss.cause == "unconfirmed"
        with own_locks.lock(fresh(), wait=0):
            assert long.wait_lost(PINGS_FAIL)


def test_a_lock_is_confirmed_again_and_again(locks: Locks) -> None:
    with locks.lock(fresh(), ttl=6) as lock:
        first_end = time.monotonic() + lock.valid_for
        while time.monotonic() + lock.valid_for < first_end + 0.5:
            assert not lock.wait_lost(0.02)


def test_locks_of_different_ttls_are_confirmed_beside_each_other(locks: Locks) -> None:
    with locks.lock(fresh(), ttl=30), ExitStack() as held:
        short = [held.enter_context(locks.lock(fresh(), ttl=6)) for _ in range(5)]
        assert not short[0].wait_lost(7)
        for lock in short:
            lock.check()


def test_work_that_blocks_sees_the_loss_by_check(locks: Locks, stage: Stage) -> None:
    name = fresh()
    blocked, go_on = threading.Event(), threading.Event()

    def force() -> None:
        blocked.wait(PATIENCE)
        stage.force(name)
        go_on.set()

    forcer = threading.Thread(target=force)
    forcer.start()
    with pytest.raises(LockLost) as lost, locks.lock(name) as lock:
        blocked.set()
        go_on.wait(PATIENCE)  # A blocking call, which the loss does not end.
        assert lock.wait_lost(PATIENCE)
        with pytest.raises(LockLost, match="forced"):
            lock.check()
        ended = True
    forcer.join()
    assert ended
    assert lost.value.cause == "forced"


def test_the_error_of_the_work_wins(locks: Locks, stage: Stage) -> None:
    name = fresh()
    with pytest.raises(ValueError, match="half done") as failed, locks.lock(name) as lock:
        stage.force(name)
        assert lock.wait_lost(PATIENCE)
        raise ValueError("half done") from KeyError("inner")
    loss = LockLost.attached_to(failed.value)
    assert loss is not None
    assert loss.cause == "forced"
    assert isinstance(failed.value.__cause__, KeyError)


def test_a_failed_unlock_does_not_hide_the_error_of_the_work(own_locks: Locks, own_stage: Stage) -> None:
    with pytest.raises(ValueError, match="half done"), own_locks.lock(fresh()):
        own_stage.command("suspend")
        raise ValueError("half done")
    own_stage.command("resume")


def test_a_loss_is_reported_once(locks: Locks, stage: Stage) -> None:
    name = fresh()
    with locks.lock(name) as lock:
        stage.force(name)
        assert lock.wait_lost(PATIENCE)
        with pytest.raises(LockLost, match="forced"):
            lock.unlock()
        lock.unlock()


def test_a_loss_in_a_reentrant_block_is_reported_by_the_outermost(locks: Locks, stage: Stage) -> None:
    name = fresh()
    inner_ended = False
    with pytest.raises(LockLost, match="forced"), locks.lock(name, reentrant=True):
        with locks.lock(name, reentrant=True) as lock:
            stage.force(name)
            assert lock.wait_lost(PATIENCE)
        inner_ended = True
    assert inner_ended


def test_a_client_that_is_closed_ends_its_locks(stage: Stage) -> None:
    name = fresh()
    with grpc.insecure_channel(stage.address) as channel:
        locks = Locks(STORE, channel=channel)
        with pytest.raises(LockLost, match="disconnected"), locks.lock(name, ttl=200) as lock:
            locks.close()
            assert lock.wait_lost(PATIENCE)
        until(lambda: stage.take(name), "the lock is free")
