"""AsyncLocks: re-entrancy."""

from __future__ import annotations

import asyncio

import pytest
from stage import PATIENCE, STORE, Stage, fresh

from leasehold_client import AsyncLocks, InvalidOption, LockLost


async def test_a_lock_is_not_reentrant_by_default(aio: AsyncLocks) -> None:
    name = fresh()
    async with aio.lock(name), aio.try_lock(name) as inner:
        assert inner is None
    # Both must set it.
    async with aio.lock(name, reentrant=True), aio.try_lock(name) as inner:
        assert inner is None
    async with aio.lock(name), aio.try_lock(name, reentrant=True) as inner:
        assert inner is None


async def test_two_clients_are_never_the_same_owner(aio: AsyncLocks, stage: Stage) -> None:
    name = fresh()
    async with AsyncLocks(STORE, address=stage.address) as other, aio.lock(name, reentrant=True):
        async with other.try_lock(name, reentrant=True) as lock:
            assert lock is None


async def test_an_ended_reentrant_lock_is_taken_again(aio: AsyncLocks) -> None:
    name = fresh()
    async with aio.lock(name, reentrant=True) as first:
        await first.unlock()
        async with aio.lock(name, reentrant=True) as second:
            assert second.token > first.token
            async with aio.lock(name, reentrant=True) as third:
                assert third is second


async def test_a_reentrant_lock_counts(aio: AsyncLocks, stage: Stage) -> None:
    name = fresh()

    async def child() -> int:
        async with aio.lock(name, reentrant=True) as lock:
            return lock.token

    async def held() -> bool:
        return not await asyncio.to_thread(stage.take, name)

    async with aio.lock(name, reentrant=True) as outer:
        async with aio.lock(name, reentrant=True) as inner, aio.try_lock(name, reentrant=True) as third:
            assert inner is outer
            assert third is outer
        assert await held()
        assert await asyncio.create_task(child()) == outer.token
        assert await held()
        with pytest.raises(InvalidOption, match="mode"):
            async with aio.lock(name, reentrant=True, mode="shared"):
                pytest.fail("it has the lock in two modes")
    assert not await held()
    # A task that was started outside is not a child of the owner.
    go_on = asyncio.Event()

    async def stranger() -> bool:
        await go_on.wait()
        async with aio.try_lock(name, reentrant=True) as lock:
            return lock is None

    task = asyncio.create_task(stranger())
    async with aio.lock(name, reentrant=True):
        go_on.set()
        assert await task


async def test_a_nested_reentrant_block_is_cancelled_once(aio: AsyncLocks, stage: Stage) -> None:
    name = fresh()
    cancelled = 0
    with pytest.raises(LockLost, match="forced"):
        async with aio.lock(name, reentrant=True):
            try:
                async with aio.lock(name, reentrant=True):
                    await asyncio.to_thread(stage.force, name)
                    await asyncio.sleep(PATIENCE)
            except asyncio.CancelledError:
                cancelled += 1
                raise
    assert cancelled == 1
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_every_task_under_a_reentrant_lock_is_cancelled(aio: AsyncLocks, stage: Stage) -> None:
    name = fresh()

    async def child() -> None:
        async with aio.lock(name, reentrant=True):
            await asyncio.sleep(PATIENCE)

    with pytest.raises(LockLost, match="forced"):
        async with aio.lock(name, reentrant=True):
            task = asyncio.create_task(child())
            await asyncio.sleep(0.05)
            await asyncio.to_thread(stage.force, name)
            await asyncio.sleep(PATIENCE)
    with pytest.raises(LockLost, match="forced"):
        await task
