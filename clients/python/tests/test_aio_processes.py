"""AsyncLocks: the locks of processes that end and are suspended."""

from __future__ import annotations

import pytest
from stage import PATIENCE, Stage, fresh
from test_threads_processes import child, line, suspend_beyond_the_deadline

from leasehold_client import AsyncLocks

HOLD = """
async def main():
    async with locks.lock(name, ttl=200):
        print("held", flush=True)
        await asyncio.sleep(200)
asyncio.run(main())
"""


async def test_a_killed_process_frees_the_lock(aio: AsyncLocks, stage: Stage) -> None:
    name = fresh()
    process = child(stage, name, HOLD, "AsyncLocks")
    assert line(process) == "held"
    process.kill()
    async with aio.lock(name, wait=PATIENCE):  # The TTL is longer.
        process.communicate()


@pytest.mark.parametrize("asked", ["at once", "after an answer"])
def test_a_suspended_process_sees_the_loss_by_check(stage: Stage, asked: str) -> None:
    body = """
async def main():
    async with locks.lock(name, ttl=2) as lock:
        print("held", flush=True)
        try:
            await WORK
        finally:
            for _ in range(2):
                try:
                    lock.check()
                    print("check returned", flush=True)
                except LeaseholdError as lost:
                    print(lost.cause, flush=True)
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(1)
asyncio.run(main())
"""
    # The first one blocks the event loop, so that no timer fires before the check.
    work = "asyncio.sleep(0, sys.stdin.readline())" if asked == "at once" else "asyncio.sleep(200)"
    process = child(stage, fresh(), body.replace("WORK", work), "AsyncLocks")
    suspend_beyond_the_deadline(process, asked)
    output, _ = process.communicate(timeout=PATIENCE)
    assert output.splitlines()[:2] == ["unconfirmed"] * 2
    assert output.splitlines()[-1].endswith("is lost: unconfirmed")
