"""AsyncLocks: how locks are lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

import grpc
import pytest
from stage import PATIENCE, STORE, Stage, fresh, until

from leasehold_client import AsyncLock, AsyncLocks, LockLost

TTL = 9.0
# The client gives the lock up this long before its TTL ends, so that a busy machine may notice the silence late.
STOP_BEFORE = 4.0
PINGS_FAIL = 30.0  # It takes 15 s, and longer on a busy machine.


async def lose(aio: AsyncLocks, how: Callable[[], object], **options: float | None) -> tuple[LockLost, float]:
    """Loses a lock; returns the loss, and how long after `how` the work had ended."""
    ended = False
    with pytest.raises(LockLost) as lost:
        async with aio.lock(fresh(), **options) as lock:  # type: ignore[arg-type]
            started = time.monotonic()
            try:
                await asyncio.to_thread(how)
                await asyncio.sleep(PATIENCE)
            finally:
                passed = time.monotonic() - started
                assert lock.valid_for == 0
                await asyncio.sleep(0.01)  # Work that takes its time to end.
                ended = True
    assert ended
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    return lost.value, passed


async def test_max_hold_ends_the_lock(aio: AsyncLocks) -> None:
    loss, _ = await lose(aio, lambda: None, max_hold=3)
    assert loss.cause == "max_hold"
    assert loss.reason == "LOCK_LOST"


@pytest.mark.parametrize("stop_before", [None, 0])
async def test_max_hold_ends_a_lock_of_a_short_ttl(aio: AsyncLocks, stop_before: float | None) -> None:
    started = time.monotonic()
    loss, _ = await lose(aio, lambda: None, ttl=9, max_hold=3.5, stop_before=stop_before)
    assert loss.cause == "max_hold"
    assert time.monotonic() - started > 2.5


async def test_a_forced_unlock_cancels_the_work(aio: AsyncLocks, stage: Stage) -> None:
    name = fresh()
    ended = False
    with pytest.raises(LockLost) as lost:
        async with aio.lock(name):
            try:
                await asyncio.to_thread(stage.force, name)
                await asyncio.sleep(PATIENCE)
            finally:
                await asyncio.sleep(0.01)
                ended = True
    assert ended
    assert lost.value.cause == "forced"
    assert lost.value.resource == name


async def test_a_killed_sidecar_cancels_the_work(own_aio: AsyncLocks, own_stage: Stage) -> None:
    loss, _ = await lose(own_aio, lambda: own_stage.command("kill"))
    assert loss.cause == "disconnected"


async def test_a_stopped_sidecar_cancels_the_work(own_aio: AsyncLocks, own_stage: Stage) -> None:
    loss, _ = await lose(own_aio, lambda: own_stage.command("stop"))
    assert loss.cause == "shutting_down"


async def test_a_suspended_sidecar_cancels_the_work_before_the_deadline(own_aio: AsyncLocks, own_stage: Stage) -> None:
    loss, passed = await lose(own_aio, lambda: own_stage.command("suspend"), ttl=TTL, stop_before=STOP_BEFORE)
    assert loss.cause == "unconfirmed"
    assert passed < TTL
    own_stage.command("resume")


async def test_a_cut_off_sidecar_cancels_the_work_before_the_deadline(own_aio: AsyncLocks, own_stage: Stage) -> None:
    loss, passed = await lose(own_aio, lambda: own_stage.command("stall"), ttl=TTL, stop_before=STOP_BEFORE)
    assert loss.cause == "unconfirmed"
    assert passed < TTL


async def test_a_dark_connection_is_replaced(own_aio: AsyncLocks, own_stage: Stage) -> None:
    with pytest.raises(LockLost, match="disconnected"):
        async with own_aio.lock(fresh(), ttl=60):
            loss, _ = await lose(own_aio, lambda: own_stage.command("vanish"), ttl=TTL, stop_before=STOP_BEFORE)
            assert loss.cause == "unconfirmed"
            async with own_aio.lock(fresh(), wait=0):
                await asyncio.sleep(PINGS_FAIL)


async def test_a_lock_is_confirmed_again_and_again(aio: AsyncLocks) -> None:
    async with aio.lock(fresh(), ttl=6) as lock:
        first_end = time.monotonic() + lock.valid_for
        while time.monotonic() + lock.valid_for < first_end + 0.5:
            lock.check()
            await asyncio.sleep(0.02)


async def test_an_outage_within_the_ttl_is_survived(own_aio: AsyncLocks, own_stage: Stage) -> None:
    async with own_aio.lock(fresh(), ttl=12) as lock:
        before = lock.valid_for
        own_stage.command("stall")
        await asyncio.sleep(4)
        assert 0 < lock.valid_for < before - 1  # Questions stay without an answer.
        own_stage.command("heal")
        deadline = time.monotonic() + PATIENCE
        while lock.valid_for < before - 1:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)


async def test_work_that_blocks_sees_the_loss_by_check(aio: AsyncLocks) -> None:
    # It blocks the event loop, so that no timer fires and nothing is received.
    with pytest.raises(LockLost) as lost:
        async with aio.lock(fresh(), ttl=2) as lock:
            time.sleep(2)
            assert lock.valid_for == 0
            with pytest.raises(LockLost, match="unconfirmed"):
                lock.check()
            ended = True
    assert ended
    assert lost.value.cause == "unconfirmed"


async def test_work_in_a_thread_sees_the_loss_by_check(aio: AsyncLocks, stage: Stage) -> None:
    name = fresh()
    seen: list[str] = []

    def work(lock: AsyncLock) -> None:
        try:
            while True:
                lock.check()
                time.sleep(0.01)
        except LockLost as lost:
            seen.append(lost.cause)

    async def run(lock: AsyncLock) -> None:
        thread = asyncio.create_task(asyncio.to_thread(work, lock))
        try:
            await asyncio.shield(thread)
        finally:
            await thread

    with pytest.raises(LockLost):
        async with aio.lock(name) as lock:
            forced = asyncio.create_task(asyncio.to_thread(stage.force, name))
            await run(lock)
    await forced
    assert seen == ["forced"]


async def test_the_error_of_the_work_wins(aio: AsyncLocks, stage: Stage) -> None:
    name = fresh()
    with pytest.raises(ValueError, match="half done") as failed:
        async with aio.lock(name):
            try:
                await asyncio.to_thread(stage.force, name)
                await asyncio.sleep(PATIENCE)
            except asyncio.CancelledError:
                raise ValueError("half done") from None
    loss = LockLost.attached_to(failed.value)
    assert loss is not None
    assert loss.cause == "forced"
    assert any("forced" in note for note in failed.value.__notes__)


async def test_work_that_swallows_its_cancellation_gets_the_loss(aio: AsyncLocks, stage: Stage) -> None:
    name = fresh()
    with pytest.raises(LockLost, match="forced"):
        async with aio.lock(name, ttl=6):
            try:
                await asyncio.to_thread(stage.force, name)
                await asyncio.sleep(PATIENCE)
            except asyncio.CancelledError:
                # It is cancelled once, although the next question and the deadline report the loss again.
                await asyncio.sleep(6)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)


async def test_a_loss_that_unlock_raised_in_the_work_replaces_the_cancellation(aio: AsyncLocks, stage: Stage) -> None:
    name = fresh()
    with pytest.raises(LockLost, match="forced"):
        async with aio.lock(name) as lock:
            try:
                await asyncio.to_thread(stage.force, name)
                await asyncio.sleep(PATIENCE)
            finally:
                with suppress(LockLost):
                    await lock.unlock()


async def test_two_locks_that_are_lost_together_end_both_blocks(own_aio: AsyncLocks, own_stage: Stage) -> None:
    outer, inner = fresh("outer"), fresh("inner")
    with pytest.raises(LockLost) as lost:
        async with own_aio.lock(outer):
            async with own_aio.lock(inner):
                await asyncio.to_thread(own_stage.command, "kill")
                await asyncio.sleep(PATIENCE)
            pytest.fail("the outer block goes on")
    assert lost.value.resource in (outer, inner)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_failed_unlock_does_not_hide_the_error_of_the_work(own_aio: AsyncLocks, own_stage: Stage) -> None:
    with pytest.raises(ValueError, match="half done"):
        async with own_aio.lock(fresh()):
            own_stage.command("suspend")
            raise ValueError("half done")
    own_stage.command("resume")


async def test_the_callers_own_cancellation_reaches_the_caller(aio: AsyncLocks, stage: Stage) -> None:
    name = fresh()

    async def work(limit: asyncio.Timeout, then: Callable[[], Awaitable[None]]) -> None:
        async with aio.lock(name):
            # Not before it is held: a call that is cancelled while it acquires leaves later.
            limit.reschedule(asyncio.get_running_loop().time())
            try:
                await asyncio.sleep(PATIENCE)
            finally:
                await then()

    async def nothing() -> None:
        pass

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(None) as limit:
            await work(limit, nothing)
    assert await asyncio.to_thread(stage.take, name)

    # Cancelled by both: the caller's cancellation is not turned into LockLost.
    async def lose_meanwhile() -> None:
        await asyncio.to_thread(stage.force, name)
        await asyncio.sleep(PATIENCE)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(None) as limit:
            await work(limit, lose_meanwhile)


async def test_a_loss_that_only_unlock_finds_is_reported(aio: AsyncLocks, stage: Stage) -> None:
    name = fresh()
    with pytest.raises(LockLost, match="forced"):
        async with aio.lock(name):
            # Blocks the event loop, so that the stream's end is not read before the Unlock.
            stage.force(name)


async def test_a_client_that_is_closed_ends_its_locks(stage: Stage) -> None:
    name = fresh()
    async with grpc.aio.insecure_channel(stage.address) as channel:
        locks = AsyncLocks(STORE, channel=channel)
        with pytest.raises(LockLost, match="disconnected"):
            async with locks.lock(name, ttl=200):
                closing = asyncio.create_task(locks.close())
                await asyncio.sleep(PATIENCE)
        await closing
        await asyncio.to_thread(until, lambda: stage.take(name), "the lock is free")
