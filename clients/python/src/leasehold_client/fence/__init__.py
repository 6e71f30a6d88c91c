"""Fences: they refuse the write of a holder whose lock has gone to somebody else.

A fence keeps the greatest token that it has seen, beside the data, and refuses a smaller one
in one step with the write. An equal token is the same holder's next write. Fences are for
exclusive locks: shared holders have different tokens at the same time.

`sql` is for databases, `redis` for Redis, `dapr_state` for Dapr's state stores. The database's
and Redis's connections are the caller's; no driver is a dependency of this package.
"""

from __future__ import annotations

from collections.abc import Sequence


def fence_key(store: str, name: str, namespace: Sequence[str] = ()) -> str:
    """The key of a fence: `store||name`, or `store||segment/segment//name` in a namespace.

    `%`, `/` and `|` within a part are written as `%25`, `%2F` and `%7C`, so that different
    locks have different keys. A handle has its key as `fence_key`.
    """
    segments = "/".join(_escaped(segment) for segment in namespace)
    return f"{_escaped(store)}||{segments + '//' if namespace else ''}{_escaped(name)}"


def _escaped(part: str) -> str:
    return part.replace("%", "%25").replace("/", "%2F").replace("|", "%7C")
