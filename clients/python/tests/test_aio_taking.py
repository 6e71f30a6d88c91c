"""AsyncLocks: how locks are taken and released."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from stage import PATIENCE, STORE, Stage, fresh, until

from leasehold_client import AsyncLock, AsyncLocks, InvalidOption, LeaseholdError, LockLost, NotAcquired, _grant
from leasehold_client._clock import now
from leasehold_client._options import Options
from leasehold_client.generated import locks_pb2 as pb


async def eventually_waits(stage: Stage, name: str, count: int = 1) -> None:
    await asyncio.to_thread(stage.wait_for_waiters, name, count)


async def test_a_lock_is_taken_and_released(aio: AsyncLocks) -> None:
    name = fresh()
    async with aio.lock(name, ttl=30) as lock:
        assert isinstance(lock, AsyncLock)
        assert lock.resource == name
        assert lock.lock_id
        assert lock.grant_id
        assert 20 < lock.valid_for < 30
        lock.check()
        token = lock.token
    assert lock.valid_for == 0
    async with aio.lock(name) as later:
        assert later.token > token


async def test_a_try_of_a_held_lock_gives_nothing(aio: AsyncLocks) -> None:
    name = fresh()
    async with aio.try_lock(name) as first, aio.try_lock(name) as second:
        assert first is not None
        assert second is None
    async with aio.try_lock(name) as third:
        assert third is not None


async def test_a_lock_waits_for_its_turn(aio: AsyncLocks, stage: Stage) -> None:
    name = fresh()
    order: list[str] = []

    async def second() -> None:
        async with aio.lock(name, wait=timedelta(seconds=PATIENCE)):
            order.append("second")

    async with aio.lock(name):
        waiting = asyncio.create_task(second())
        await eventually_waits(stage, name)
        order.append("first")
    await waiting
    assert order == ["first", "second"]


async def test_a_wait_ends_at_its_limit(aio: AsyncLocks) -> None:
    name = fresh()
    async with aio.lock(name):
        with pytest.raises(NotAcquired) as refused:
            async with aio.lock(name, wait=2):
                pytest.fail("it has the lock")
    assert refused.value.reason == "WAIT_DEADLINE"
    assert str(refused.value) == f"the lock {name!r} was not acquired within 2 s"


async def test_a_try_that_may_not_wait_names_the_holder(aio: AsyncLocks) -> None:
    name = fresh()
    async with aio.lock(name, label="nightly"):
        with pytest.raises(NotAcquired) as refused:
            async with aio.lock(name, wait=0):
                pytest.fail("it has the lock")
    assert refused.value.reason == "RESOURCE_LOCKED"
    assert refused.value.holder is not None
    assert refused.value.holder.startswith("app/")
    assert refused.value.holder.endswith("/nightly")
    assert str(refused.value) == f"the lock {name!r} is held by {refused.value.holder}"


async def test_the_label_is_seen_by_inspection(aio: AsyncLocks, stage: Stage) -> None:
    name = fresh()
    async with aio.lock(name, label="invoice run"):
        (holder,) = await asyncio.to_thread(stage.holders, name)
    assert holder.rpartition("/")[2] == "invoice run"


async def test_namespaces_are_apart(aio: AsyncLocks, stage: Stage) -> None:
    name = fresh()
    async with aio.lock(name, namespace=["shop", "eu"]) as one, aio.try_lock(name, namespace=("shop", "us")) as two:
        assert two is not None
        assert one.namespace == ("shop", "eu")
        assert len(await asyncio.to_thread(stage.holders, name, "shop", "eu")) == 1
        assert await asyncio.to_thread(stage.holders, name) == []


async def test_readers_share_a_lock(aio: AsyncLocks) -> None:
    name = fresh()
    async with aio.lock(name, mode="shared"), aio.try_lock(name, mode="shared") as second:
        assert second is not None
        async with aio.try_lock(name) as writer:
            assert writer is None


BAD = [
    ("name", "", {}),
    ("wait", "x", {"wait": -1}),
    ("wait", "x", {"wait": float("nan")}),
    ("ttl", "x", {"ttl": 0}),
    ("ttl", "x", {"ttl": timedelta(seconds=-1)}),
    ("ttl", "x", {"ttl": "10s"}),
    ("max_hold", "x", {"max_hold": 0}),
    ("stop_before", "x", {"stop_before": -0.1}),
    ("mode", "x", {"mode": "sharedd"}),
    ("namespace", "x", {"namespace": "shop"}),
    ("label", "x", {"label": 5}),
    ("request_id", "x", {"request_id": 5}),
    ("name", os.fsdecode(b"f\xff"), {}),
    ("namespace", "x", {"namespace": ["shop", 1]}),
    ("namespace", "x", {"namespace": 1}),
    ("namespace", "x", {"namespace": ["\ud800"]}),
    ("label", "x", {"label": "\ud800"}),
    ("request_id", "x", {"request_id": "\ud800"}),
    ("stop_before", "x", {"max_hold": 5, "stop_before": 5}),
]


async def test_a_bad_option_is_named(aio: AsyncLocks) -> None:
    for option, name, options in BAD:
        with pytest.raises(InvalidOption, match=f"^{option} ") as refused:
            aio.lock(name, **options)  # type: ignore[arg-type]
        assert refused.value.option == option
        assert refused.value.reason == "INVALID_REQUEST"
    with pytest.raises(InvalidOption, match=r"^wait .*try_lock"):
        aio.try_lock("x", wait=2)  # type: ignore[call-arg]
    for store in ("", "\ud800", None):
        with pytest.raises(InvalidOption, match=r"^store "):
            AsyncLocks(store)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match=r"^api_token .*newline"):
        AsyncLocks(STORE, api_token="s3cret\n")
    # Known only once the lock is granted, which is then released.
    name = fresh()
    with pytest.raises(InvalidOption, match=r"^stop_before is not shorter than the granted TTL of 200 s"):
        async with aio.lock(name, ttl=200, stop_before=190):
            pytest.fail("it has the lock")
    async with aio.lock(name, wait=PATIENCE):
        pass
    # The sidecar's own.
    with pytest.raises(LeaseholdError, match="label") as by_sidecar:
        async with aio.lock(fresh(), label="x" * 200):
            pytest.fail("it has the lock")
    assert by_sidecar.value.reason == "INVALID_REQUEST"


async def test_a_misspelt_call_is_named(aio: AsyncLocks) -> None:
    for option in ("waits", "immediate", "call", "cls"):
        with pytest.raises(TypeError, match=rf"^lock\(\) .*'{option}'"):
            aio.lock("x", **{option: 2})  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=rf"^try_lock\(\) .*'{option}'"):
            aio.try_lock("x", **{option: 2})  # type: ignore[arg-type]
    with pytest.raises(AttributeError, match="async with"):
        aio.lock("x").token  # type: ignore[attr-defined]  # noqa: B018


async def test_an_unknown_store_is_refused_with_its_reason(stage: Stage) -> None:
    async with AsyncLocks("nowhere", address=stage.address) as locks:
        with pytest.raises(LeaseholdError) as refused:
            async with locks.lock("x"):
                pytest.fail("it has the lock")
    assert refused.value.reason == "STORE_NOT_FOUND"


async def test_nobody_at_the_address_is_unavailable() -> None:
    async with AsyncLocks(STORE, address="127.0.0.1:1") as locks:
        with pytest.raises(
            LeaseholdError, match=r"^no sidecar at 127\.0\.0\.1:1: connection refused; start"
        ) as refused:
            async with locks.lock("x"):
                pytest.fail("it has the lock")
    assert refused.value.reason == "UNAVAILABLE"
    async with grpc.aio.insecure_channel("127.0.0.1:1") as channel, AsyncLocks(STORE, channel=channel) as locks:
        with pytest.raises(LeaseholdError, match=r"^no sidecar: connection refused; start") as refused:
            async with locks.lock("x"):
                pytest.fail("it has the lock")
    assert refused.value.reason == "UNAVAILABLE"


@pytest.mark.parametrize("wait", [None, 0.5])
async def test_a_silent_sidecar_is_given_up(
    own_aio: AsyncLocks, own_stage: Stage, monkeypatch: pytest.MonkeyPatch, wait: float | None
) -> None:
    name = fresh()
    async with own_aio.lock(name):
        pass
    monkeypatch.setattr(_grant, "LONGEST_SILENCE", 2.0)  # Instead of 30 s, after which pings are missing.
    monkeypatch.setattr(_grant, "LATENESS", 1.0)
    own_stage.command("stall")
    with pytest.raises(LeaseholdError) as refused:
        async with own_aio.lock(name, wait=wait, ttl=200):
            pytest.fail("it has the lock")
    assert refused.value.reason == "UNAVAILABLE"
    own_stage.command("heal")
    assert await asyncio.to_thread(until, lambda: own_stage.take(name), "the request is withdrawn")


async def test_an_unlock_is_idempotent(aio: AsyncLocks, stage: Stage) -> None:
    name = fresh()
    async with aio.lock(name) as lock:
        await lock.unlock()
        assert lock.valid_for == 0
        with pytest.raises(LockLost, match="ended"):
            lock.check()
        assert await asyncio.to_thread(stage.take, name)
        await lock.unlock()
        await asyncio.sleep(0.1)  # Nothing is cancelled.
    await lock.unlock()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_an_unlock_is_not_cancelled_with_its_caller(aio: AsyncLocks, stage: Stage) -> None:
    name = fresh()
    held: asyncio.Queue[AsyncLock] = asyncio.Queue()

    async def work() -> None:
        async with aio.lock(name) as lock:
            held.put_nowait(lock)
            await asyncio.sleep(PATIENCE)

    task = asyncio.create_task(work())
    lock = await held.get()
    task.cancel()
    await asyncio.sleep(0)  # Its Unlock is under way.
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    # The task has waited for it.
    assert lock._ending is not None
    assert lock._ending.done()
    assert await asyncio.to_thread(stage.take, name)


async def test_a_cancelled_wait_leaves_nothing(aio: AsyncLocks, stage: Stage) -> None:
    name = fresh()

    async def wait() -> None:
        async with aio.lock(name):
            pass

    async with aio.lock(name):
        first = asyncio.create_task(wait())
        await eventually_waits(stage, name, 1)
        second = asyncio.create_task(wait())
        await eventually_waits(stage, name, 2)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        await eventually_waits(stage, name, 1)
    await asyncio.wait_for(second, PATIENCE)
    await eventually_waits(stage, name, 0)
    assert await asyncio.to_thread(stage.take, name)


async def test_a_cancellation_that_came_before_the_call_reaches_the_caller(aio: AsyncLocks, stage: Stage) -> None:
    name = fresh()

    async def wait() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()  # As Ctrl-C does while the task runs: the next await raises it.
        async with aio.lock(name):
            pytest.fail("it has the lock")

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(wait())
    assert await asyncio.to_thread(stage.take, name)


async def test_a_repeated_request_id_finds_its_grant(aio: AsyncLocks) -> None:
    name, secret = fresh(), fresh("secret")
    with pytest.raises(LeaseholdError) as lost:
        async with aio.lock(name, request_id=secret) as first, aio.lock(name, request_id=secret) as second:
            assert second.token == first.token
            # The first block's task is the second one's too.
            await asyncio.sleep(PATIENCE)
    assert getattr(lost.value, "cause", None) == "ended"


async def test_the_address_and_token_come_from_the_environment(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
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
                async with AsyncLocks(STORE) as locks, locks.lock(fresh()) as lock:
                    assert lock.token
        async with AsyncLocks(STORE, address=stage.address, api_token="wrong") as locks:
            with pytest.raises(LeaseholdError) as refused:
                async with locks.lock(fresh()):
                    pytest.fail("it has the lock")
        assert refused.value.reason == "UNAUTHENTICATED"
    finally:
        stage.close()


async def test_a_unix_socket_is_an_address(backend: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("s")
    stage = Stage(backend)
    forwarder = await asyncio.start_unix_server(_to(stage.grpc_port), str(folder / "s"))
    try:
        async with AsyncLocks(STORE, address=f"unix:{folder}/s") as locks, locks.lock(fresh()) as lock:
            assert lock.token
    finally:
        forwarder.close()
        stage.close()


def _to(port: int):  # type: ignore[no-untyped-def]
    async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            sink.write(data)
        sink.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pump(reader, inner_writer), pump(inner_reader, writer))

    return serve


async def test_a_channel_of_the_caller_is_used_and_left_open(stage: Stage) -> None:
    async with grpc.aio.insecure_channel(stage.address) as channel:
        for _ in range(2):
            async with AsyncLocks(STORE, channel=channel) as locks, locks.lock(fresh()) as lock:
                assert lock.token


async def test_what_a_closed_client_waits_for_is_refused(stage: Stage, aio: AsyncLocks) -> None:
    name = fresh()
    closed = AsyncLocks(STORE, address=stage.address)

    async def wait() -> None:
        async with closed.lock(name):
            pytest.fail("it has the lock")

    async with aio.lock(name):
        waiting = asyncio.create_task(wait())
        await eventually_waits(stage, name)
        await closed.close()
        with pytest.raises(LeaseholdError) as refused:
            await waiting
        assert refused.value.reason == "CANCELLED"
        with pytest.raises(LeaseholdError, match="closed"):
            await wait()
    until(lambda: stage.waiters(name) == 0, "nobody waits")


async def test_a_closed_channel_of_the_caller_is_an_error_of_the_library(stage: Stage) -> None:
    async with grpc.aio.insecure_channel(stage.address) as channel:
        locks = AsyncLocks(STORE, channel=channel)
        async with locks.lock(fresh()):
            pass
    with pytest.raises(LeaseholdError, match="closed") as refused:
        async with locks.lock(fresh()):
            pytest.fail("it has the lock")
    assert refused.value.reason == "CANCELLED"


def _granted(options: dict[str, Any], age: float) -> _grant.Grant:
    """A lock with a TTL of 30 s that was received so long after its request."""
    acquired = pb.LockAcquired(ttl={"seconds": 30})
    stubs: Any = SimpleNamespace(fall_silent=lambda: None)
    return _grant.Grant(stubs, STORE, Options.checked("lock", "x", **options), acquired, now() - age)


def test_a_lock_that_comes_after_its_safe_deadline_is_not_acquired() -> None:
    with pytest.raises(LeaseholdError) as refused:
        _granted({}, 29)
    assert refused.value.reason == "UNAVAILABLE"
    # Before it, but too late for `stop_before`, the lock is held and lost at once.
    with pytest.raises(LockLost, match="unconfirmed"):
        _granted({"stop_before": 20}, 10).check()
