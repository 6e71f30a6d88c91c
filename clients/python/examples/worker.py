"""A worker that loses its lock in the middle of its work, and stops.

    DAPR_GRPC_PORT=50001 python worker.py

While it runs, end its lock: `curl -X DELETE -d '{"force":true}'
http://127.0.0.1:3500/v1.0-alpha2/lock/lockstore/order-1`.
"""

import asyncio

from leasehold_client import AsyncLocks, LockLost


async def charge(order: str, step: int, fence: int) -> None:
    """Stands for a call of a service that refuses a smaller token than it has seen."""
    print(f"{order}: step {step} with token {fence}", flush=True)
    await asyncio.sleep(0.2)


async def main() -> None:
    async with AsyncLocks(store="lockstore") as locks:
        try:
            async with locks.lock("order-1", wait=10, label="invoice run") as lock:
                for step in range(100):
                    await charge("order-1", step, lock.token)
        except LockLost as lost:
            print(f"stopped: {lost}", flush=True)


asyncio.run(main())
