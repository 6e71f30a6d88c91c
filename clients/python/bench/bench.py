"""What the client costs, beside raw gRPC in the same process.

    bench.py [ROUNDS]

Prints the time of a lock and its unlock through the client and through raw LockStream and
Unlock, interleaved in one run, and the time from a forced unlock to the cancellation of the
work. LEASEHOLD_TEST_SIDECAR names the program that starts the sidecar; its store is memory.
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc

from leasehold_client import AsyncLocks, LockLost, Locks
from leasehold_client._rpc import Stubs
from leasehold_client.generated import locks_pb2 as pb

STORE = "lockstore"
ROOT = Path(__file__).resolve().parents[3]
LAUNCHER = os.environ.get("LEASEHOLD_TEST_SIDECAR", str(ROOT / "target/debug/leasehold-test-sidecar"))
BATCH = 20


def show(form: str, raw: list[float], client: list[float]) -> None:
    ours, theirs = statistics.median(client), statistics.median(raw)
    print(f"{form}: raw {theirs * 1e6:.0f} µs, client {ours * 1e6:.0f} µs, ratio {ours / theirs:.2f}")


def request(name: str) -> pb.LockRequest:
    return pb.LockRequest(store_name=STORE, resource_id=name)


def farewell(name: str, lock_id: str) -> pb.UnlockRequest:
    return pb.UnlockRequest(store_name=STORE, resource_id=name, lock_id=lock_id)


async def aio_rounds(address: str, rounds: int) -> None:
    async with grpc.aio.insecure_channel(address) as channel, AsyncLocks(STORE, channel=channel) as locks:
        stubs = Stubs(channel)

        async def raw() -> None:
            stream = stubs.lock_stream(request("raw"), ())
            message = await stream.read()
            await stubs.unlock(farewell("raw", message.lock_acquired.lock_id), timeout=5)
            stream.cancel()

        async def client() -> None:
            async with locks.lock("client"):
                pass

        async def timed(call: Callable[[], Awaitable[None]]) -> float:
            started = time.perf_counter()
            for _ in range(BATCH):
                await call()
            return (time.perf_counter() - started) / BATCH

        raws, clients = [], []
        for _ in range(max(2, rounds // BATCH)):
            raws.append(await timed(raw))
            clients.append(await timed(client))
        show("asyncio", raws[1:], clients[1:])


def thread_rounds(address: str, rounds: int) -> None:
    with grpc.insecure_channel(address) as channel, Locks(STORE, channel=channel) as locks:
        stubs = Stubs(channel)

        def raw() -> None:
            stream = stubs.lock_stream(request("raw"), ())
            message = next(stream)
            stubs.unlock(farewell("raw", message.lock_acquired.lock_id), timeout=5)
            stream.cancel()

        def client() -> None:
            with locks.lock("client"):
                pass

        def timed(call: Callable[[], None]) -> float:
            started = time.perf_counter()
            for _ in range(BATCH):
                call()
            return (time.perf_counter() - started) / BATCH

        raws, clients = [], []
        for _ in range(max(2, rounds // BATCH)):
            raws.append(timed(raw))
            clients.append(timed(client))
        show("threads", raws[1:], clients[1:])


async def loss(address: str) -> None:
    """From the sending of a ForceUnlock to the CancelledError in the work."""
    async with grpc.aio.insecure_channel(address) as channel, AsyncLocks(STORE, address=address) as locks:
        force = channel.unary_unary(
            "/leasehold.v1.Locks/ForceUnlock",
            request_serializer=pb.ForceUnlockRequest.SerializeToString,
            response_deserializer=pb.ForceUnlockResponse.FromString,
        )
        passed: list[float] = []
        for round_ in range(50):
            name = f"loss-{round_}"
            started = 0.0
            try:
                async with locks.lock(name):
                    try:
                        await asyncio.sleep(0.005)
                        started = time.perf_counter()
                        forcing = asyncio.ensure_future(
                            force(pb.ForceUnlockRequest(store_name=STORE, resource_id=name), timeout=5)
                        )
                        await asyncio.sleep(10)
                    finally:
                        passed.append(time.perf_counter() - started)
            except LockLost:
                await forcing
        print(f"forced unlock to cancelled work: median {statistics.median(passed) * 1e3:.2f} ms of {len(passed)}")


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    launcher = subprocess.Popen([LAUNCHER, "memory"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert launcher.stdin is not None
    assert launcher.stdout is not None
    try:
        address = f"127.0.0.1:{json.loads(launcher.stdout.readline())['grpcPort']}"
        thread_rounds(address, rounds)
        asyncio.run(aio_rounds(address, rounds))
        asyncio.run(loss(address))
    finally:
        launcher.stdin.close()
        launcher.wait()


main()
