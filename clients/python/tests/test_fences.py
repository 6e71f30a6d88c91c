"""The fences: a stale writer loses; without the fence its update wins."""

from __future__ import annotations

import json
import sqlite3
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
import redis as redis_client
import redis.asyncio as async_redis_client
import servers
from stage import PATIENCE, Stage, fresh

from leasehold_client import LeaseholdError, Lock, LockLost, Locks, StaleToken
from leasehold_client.fence import dapr_state, fence_key, redis, sql


@pytest.fixture
def holders(locks: Locks, stage: Stage) -> tuple[Lock, Lock]:
    """A stale holder, which has not noticed that its lock was forced, and the current one."""
    name = fresh("order/1|%")
    taken: list[Lock] = []
    quoted = urllib.request.quote(name, safe="")  # type: ignore[attr-defined]
    with pytest.raises(LockLost), locks.lock(name) as lock:
        taken.append(lock)
        stage.force(quoted)
        assert lock.wait_lost(PATIENCE)
    with locks.lock(name) as lock:
        taken.append(lock)
    assert taken[0].token < taken[1].token
    assert taken[0].fence_key == taken[1].fence_key
    return taken[0], taken[1]


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    with servers.postgres() as address, psycopg.connect(address) as connection:
        connection.execute(sql.CREATE_TABLE["postgresql"])
        connection.execute("CREATE TABLE orders (id TEXT PRIMARY KEY, state TEXT NOT NULL)")
        connection.commit()
        yield address


@pytest.fixture(scope="session")
def redis_port() -> Iterator[int]:
    with servers.redis_server() as port:
        yield port


@pytest.fixture(scope="session")
def daprd(redis_port: int) -> Iterator[str]:
    with servers.daprd(redis_port) as endpoint:
        yield endpoint


UPSERT = "INSERT INTO orders VALUES ({0}, {0}) ON CONFLICT (id) DO UPDATE SET state = excluded.state"


def test_different_locks_have_different_fence_keys() -> None:
    assert fence_key("lockstore", "order-1") == "lockstore||order-1"
    assert fence_key("lockstore", "order-1", ["shop", "eu"]) == "lockstore||shop/eu//order-1"
    assert fence_key("lockstore", "shop/eu//order|1%") == "lockstore||shop%2Feu%2F%2Forder%7C1%25"


def test_a_stale_token_is_refused_by_postgresql(postgres: str, holders: tuple[Lock, Lock]) -> None:
    stale, current = holders
    upsert = UPSERT.format("%s")

    def write(lock: Lock, state: str) -> None:
        with psycopg.connect(postgres) as connection, connection.cursor() as cursor:
            sql.guard(cursor, lock.fence_key, lock.token, dialect="postgresql")
            cursor.execute(upsert, (lock.resource, state))

    def state() -> Any:
        with psycopg.connect(postgres) as connection:
            row = connection.execute("SELECT state FROM orders WHERE id = %s", (stale.resource,)).fetchone()
            return row and row[0]

    write(stale, "by the stale holder, in time")
    write(current, "first")
    write(current, "second")
    with pytest.raises(StaleToken) as refused:
        write(stale, "stale")
    assert refused.value.token == stale.token
    assert refused.value.reason == "STALE_TOKEN"
    assert state() == "second"

    # Without the fence.
    with psycopg.connect(postgres) as connection:
        connection.execute(upsert, (stale.resource, "stale"))
    assert state() == "stale"


def test_a_stale_writer_in_postgresql_waits_for_the_guard_row(postgres: str, holders: tuple[Lock, Lock]) -> None:
    stale, current = holders

    def write_stale() -> None:
        with psycopg.connect(postgres) as connection, connection.cursor() as cursor:
            started.set()
            sql.guard(cursor, stale.fence_key, stale.token, dialect="postgresql")

    started = threading.Event()
    with ThreadPoolExecutor() as pool, psycopg.connect(postgres) as connection:
        sql.guard(connection.cursor(), current.fence_key, current.token, dialect="postgresql")
        writing = pool.submit(write_stale)
        started.wait(PATIENCE)
        connection.commit()
        with pytest.raises(StaleToken):
            writing.result(PATIENCE)


async def test_a_stale_token_is_refused_by_postgresql_for_asyncio(postgres: str, holders: tuple[Lock, Lock]) -> None:
    stale, current = holders
    async with await psycopg.AsyncConnection.connect(postgres) as connection:
        for _ in range(2):
            async with connection.transaction(), connection.cursor() as cursor:
                await sql.guard_async(cursor, current.fence_key, current.token, dialect="postgresql")
        with pytest.raises(StaleToken):
            async with connection.transaction(), connection.cursor() as cursor:
                await sql.guard_async(cursor, stale.fence_key, stale.token, dialect="postgresql")


def test_a_stale_token_is_refused_by_sqlite(tmp_path: Path, holders: tuple[Lock, Lock]) -> None:
    stale, current = holders
    database = tmp_path / "orders.db"
    upsert = UPSERT.format("?")
    with sqlite3.connect(database) as connection:
        connection.execute(sql.CREATE_TABLE["sqlite"])
        connection.execute("CREATE TABLE orders (id TEXT PRIMARY KEY, state TEXT NOT NULL)")

    def write(lock: Lock, state: str) -> None:
        with sqlite3.connect(database) as connection:
            sql.guard(connection.cursor(), lock.fence_key, lock.token, dialect="sqlite")
            connection.execute(upsert, (lock.resource, state))

    def state() -> Any:
        with sqlite3.connect(database) as connection:
            return connection.execute("SELECT state FROM orders").fetchone()[0]

    write(current, "first")
    write(current, "second")
    with pytest.raises(StaleToken):
        write(stale, "stale")
    assert state() == "second"

    with sqlite3.connect(database) as connection:
        connection.execute(upsert, (stale.resource, "stale"))
    assert state() == "stale"


def test_a_guard_without_a_transaction_is_refused(tmp_path: Path, postgres: str) -> None:
    lite = sqlite3.connect(tmp_path / "orders.db", isolation_level=None)
    lite.execute(sql.CREATE_TABLE["sqlite"])
    with pytest.raises(LeaseholdError, match="transaction"):
        sql.guard(lite.cursor(), "k", 1, dialect="sqlite")
    lite.close()
    with psycopg.connect(postgres, autocommit=True) as connection, pytest.raises(LeaseholdError, match="transaction"):
        sql.guard(connection.cursor(), fresh(), 1, dialect="postgresql")
    with pytest.raises(ValueError, match="dialect"):
        sql.guard(None, "k", 1, dialect="oracle")  # type: ignore[arg-type]


def test_a_stale_token_is_refused_by_mariadb(holders: tuple[Lock, Lock]) -> None:
    stale, current = holders
    upsert = "INSERT INTO orders VALUES (%s, %s) ON DUPLICATE KEY UPDATE state = VALUES(state)"
    with servers.mariadb() as path:
        connection = pymysql.connect(unix_socket=path)

        def write(lock: Lock, state: str) -> None:
            connection.begin()
            try:
                with connection.cursor() as cursor:
                    sql.guard(cursor, lock.fence_key, lock.token, dialect="mysql")
                    cursor.execute(upsert, (lock.resource, state))
            except BaseException:
                connection.rollback()
                raise
            connection.commit()

        def state() -> Any:
            with connection.cursor() as cursor:
                cursor.execute("SELECT state FROM orders")
                row = cursor.fetchone()
                return row and row[0]

        with connection.cursor() as cursor:
            cursor.execute("CREATE DATABASE test")
            cursor.execute("USE test")
            cursor.execute(sql.CREATE_TABLE["mysql"])
            cursor.execute("CREATE TABLE orders (id VARCHAR(200) PRIMARY KEY, state TEXT NOT NULL)")
        write(stale, "by the stale holder, in time")
        write(current, "first")
        write(current, "second")
        with pytest.raises(StaleToken) as refused:
            write(stale, "stale")
        assert refused.value.seen == current.token
        assert state() == "second"
        with connection.cursor() as cursor:
            cursor.execute(upsert, (stale.resource, "stale"))
        assert state() == "stale"
        connection.close()


def test_a_stale_token_is_refused_by_redis(redis_port: int, holders: tuple[Lock, Lock]) -> None:
    stale, current = holders
    name = stale.resource
    with redis_client.Redis(port=redis_port, decode_responses=True) as client:
        redis.run(client, stale.fence_key, stale.token, ["SET", name, "by the stale holder, in time"])
        assert redis.run(
            client, current.fence_key, current.token, ["SET", name, "first"], ["APPEND", name, " one"]
        ) == ["OK", 9]
        assert redis.run(client, current.fence_key, current.token, ["SET", name, "second"], keys=[name]) == ["OK"]
        with pytest.raises(StaleToken) as refused:
            redis.run(client, stale.fence_key, stale.token, ["SET", name, "stale"])
        assert refused.value.seen == current.token
        assert client.get(name) == "second"

        client.set(name, "stale")  # Without the fence.
        assert client.get(name) == "stale"


async def test_a_stale_token_is_refused_by_redis_for_asyncio(redis_port: int, holders: tuple[Lock, Lock]) -> None:
    stale, current = holders
    async with async_redis_client.Redis(port=redis_port) as client:
        assert await redis.run_async(client, current.fence_key, current.token, ["GET", fresh()]) == [None]
        with pytest.raises(StaleToken):
            await redis.run_async(client, stale.fence_key, stale.token, ["GET", fresh()])


def test_tokens_of_63_bits_are_compared_exactly(redis_port: int) -> None:
    great, key = 2**63 - 1, fresh()
    with redis_client.Redis(port=redis_port) as client:
        redis.run(client, key, 9)
        redis.run(client, key, 10)
        redis.run(client, key, great)
        redis.run(client, key, great)
        for token in (great - 1, 9_000_000_000_000_000_000, 2, 10**17):
            with pytest.raises(StaleToken):
                redis.run(client, key, token)


@pytest.mark.parametrize("store", ["redis", "memory"])
def test_a_stale_token_is_refused_by_dapr_state(daprd: str, store: str, holders: tuple[Lock, Lock]) -> None:
    stale, current = holders
    state, name = dapr_state.FencedState(store, endpoint=daprd), fresh()

    def write(lock: Lock, text: str) -> Any:
        return state.update(name, lock.fence_key, lock.token, lambda old: [*(old or []), text])

    assert state.load(name) is None
    assert write(stale, "in time") == ["in time"]
    assert write(current, "first") == ["in time", "first"]
    assert write(current, "second") == ["in time", "first", "second"]
    with pytest.raises(StaleToken) as refused:
        write(stale, "stale")
    assert refused.value.seen == current.token
    stored = state.load(name)
    assert stored is not None
    assert (stored.value[-1], stored.token) == ("second", current.token)
    with pytest.raises(LeaseholdError) as other:
        state.update(name, fence_key("lockstore", "another"), current.token, lambda _: None)
    assert other.value.reason == "NOT_FENCED"

    # Without the fence.
    name = fresh()
    for text in ("current", "stale"):
        plain = json.dumps([{"key": name, "value": text}]).encode()
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(f"{daprd}/v1.0/state/{store}", data=plain, headers=headers)
        urllib.request.urlopen(request).close()
    with urllib.request.urlopen(f"{daprd}/v1.0/state/{store}/{name}") as answer:
        assert json.loads(answer.read()) == "stale"
    with pytest.raises(LeaseholdError, match="without a fence"):
        state.update(name, current.fence_key, current.token, lambda _: "third")


@pytest.mark.parametrize("store", ["redis", "memory"])
def test_a_writer_between_read_and_save_is_seen_by_dapr_state(
    daprd: str, store: str, holders: tuple[Lock, Lock]
) -> None:
    stale, current = holders
    for first in (True, False):  # The key is new, or it has a value.
        state, name = dapr_state.FencedState(store, endpoint=daprd), fresh()
        if not first:
            state.update(name, stale.fence_key, stale.token, lambda _: "old")

        def change(_: Any, state: dapr_state.FencedState = state, name: str = name) -> str:
            state.update(name, current.fence_key, current.token, lambda _: "current")
            return "stale"

        with pytest.raises(StaleToken):
            state.update(name, stale.fence_key, stale.token, change)
        stored = state.load(name)
        assert stored is not None
        assert stored.value == "current"
