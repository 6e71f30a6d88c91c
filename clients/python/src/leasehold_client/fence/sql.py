"""A fence in a database: a guard row, in the transaction of the guarded writes.

    with connection.transaction(), connection.cursor() as cursor:
        sql.guard(cursor, lock.fence_key, lock.token, dialect="postgresql")
        cursor.execute("UPDATE orders SET ...")

The row stays locked until the transaction ends, so no other holder writes meanwhile. Without a
transaction there is no protection: do not use autocommit.
"""

from __future__ import annotations

from typing import Any, Literal

from ..errors import InvalidOption, LeaseholdError, StaleToken

Dialect = Literal["postgresql", "mysql", "sqlite"]

CREATE_TABLE: dict[Dialect, str] = {
    "postgresql": "CREATE TABLE IF NOT EXISTS leasehold_fence (resource TEXT PRIMARY KEY, token BIGINT NOT NULL)",
    "mysql": "CREATE TABLE IF NOT EXISTS leasehold_fence "
    "(resource VARBINARY(3072) PRIMARY KEY, token BIGINT NOT NULL) ENGINE = InnoDB",
    "sqlite": "CREATE TABLE IF NOT EXISTS leasehold_fence (resource TEXT PRIMARY KEY, token INTEGER NOT NULL)",
}
"""The table, for each dialect. Run it once, where the schema is made."""

_UPSERT = (
    "INSERT INTO leasehold_fence (resource, token) VALUES ({0}, {0}) "
    "ON CONFLICT (resource) DO UPDATE SET token = excluded.token "
    "WHERE leasehold_fence.token <= excluded.token"
)
# MySQL counts no row both for a refused token and for an equal one.
_MYSQL_UPSERT = (
    "INSERT INTO leasehold_fence (resource, token) VALUES ({0}, {0}) "
    "ON DUPLICATE KEY UPDATE token = GREATEST(token, {0})"
)
_SELECT = "SELECT token FROM leasehold_fence WHERE resource = {0}"


def guard(cursor: Any, key: str, token: int, *, dialect: Dialect, placeholder: str | None = None) -> None:
    """Refuses a smaller token than the greatest one seen, else stores it.

    `cursor` is a DB-API cursor in the transaction of the guarded writes. `placeholder` is
    what the driver writes for a parameter: `?` for SQLite and `%s` for the others by default.

    Raises `StaleToken`; the caller's transaction must then be rolled back. Raises
    `LeaseholdError` with the reason `NO_TRANSACTION` if no transaction is open, as far as
    the driver reports it (psycopg, psycopg2 and sqlite3 do). Errors of the driver pass through.
    """
    mark = placeholder or _placeholder(dialect)
    if dialect == "mysql":
        cursor.execute(_MYSQL_UPSERT.format(mark), (key, token, token))
        # Locking, because a plain read may see an old snapshot.
        cursor.execute(_SELECT.format(mark) + " FOR UPDATE", (key,))
        seen = cursor.fetchone()[0]
        refused = seen > token
    else:
        cursor.execute(_UPSERT.format(mark), (key, token))
        seen, refused = None, cursor.rowcount == 0
    _expect_transaction(cursor)
    if refused:
        raise StaleToken(key, token, seen)


async def guard_async(cursor: Any, key: str, token: int, *, dialect: Dialect, placeholder: str | None = None) -> None:
    """`guard` for an asynchronous cursor, such as psycopg's `AsyncCursor` or aiosqlite's."""
    mark = placeholder or _placeholder(dialect)
    if dialect == "mysql":
        await cursor.execute(_MYSQL_UPSERT.format(mark), (key, token, token))
        await cursor.execute(_SELECT.format(mark) + " FOR UPDATE", (key,))
        seen = (await cursor.fetchone())[0]
        refused = seen > token
    else:
        await cursor.execute(_UPSERT.format(mark), (key, token))
        seen, refused = None, cursor.rowcount == 0
    _expect_transaction(cursor)
    if refused:
        raise StaleToken(key, token, seen)


def _placeholder(dialect: Dialect) -> str:
    if dialect not in CREATE_TABLE:
        raise InvalidOption("dialect", f"is {dialect!r}, not one of {', '.join(CREATE_TABLE)}")
    return "?" if dialect == "sqlite" else "%s"


def _expect_transaction(cursor: Any) -> None:
    connection = getattr(cursor, "connection", None)
    # sqlite3 and aiosqlite; psycopg and psycopg2, where 0 is libpq's IDLE.
    in_transaction = getattr(connection, "in_transaction", None)
    status = getattr(getattr(connection, "info", None), "transaction_status", None)
    if in_transaction is False or status == 0:
        raise LeaseholdError("a fence needs a transaction around the guarded writes", reason="NO_TRANSACTION")
