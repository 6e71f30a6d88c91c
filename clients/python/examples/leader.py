"""Leader election: a lock that a loop holds. Start it several times.

DAPR_GRPC_PORT=50001 python leader.py NAME
"""

import asyncio
import sys

from leasehold_client import AsyncLocks, LeaseholdError, LockLost


async def lead(name: str, term: int) -> None:
    """What only the leader does. It is cancelled when the leadership ends."""
    print(f"{name} leads, term {term}", flush=True)
    while True:
        await asyncio.sleep(1)


async def main(name: str) -> None:
    async with AsyncLocks(store="lockstore") as locks:
        while True:
            try:
                async with locks.lock("leader", label=name) as lock:
                    await lead(name, lock.token)
            except LockLost as lost:
                print(f"{name} is no longer the leader: {lost.cause}", flush=True)
            except LeaseholdError as error:
                print(f"{name} cannot stand for election: {error}", flush=True)
                await asyncio.sleep(1)


asyncio.run(main(sys.argv[1]))
