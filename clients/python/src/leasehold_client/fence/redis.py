"""A fence in Redis: a script that refuses a smaller token, else stores it and runs commands.

    redis.run(client, lock.fence_key, lock.token, ["SET", "order-1", "charged"])

The script is one step for Redis. The fence is the key `leasehold_fence:` and the lock's key;
it must not expire or be evicted while an old holder may still write.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import StaleToken

Argument = str | bytes | int | float
Command = Sequence[Argument]

# Tokens are compared as decimal digits: a Lua number is exact up to 2^53 only.
SCRIPT = """
local token, seen = ARGV[1], redis.call('GET', KEYS[1])
if seen and (#token < #seen or (#token == #seen and token < seen)) then
  return {0, seen}
end
redis.call('SET', KEYS[1], token)
local results, at = {1}, 2
while at <= #ARGV do
  local last = at + tonumber(ARGV[at])
  results[#results + 1] = redis.call(unpack(ARGV, at + 1, last))
  at = last + 1
end
return results
"""
"""KEYS: the fence's key, then those of the commands. ARGV: the token, then for each command
the number of its words, and the words. Answers `{0, seen}` or `{1, result...}`."""


def run(
    client: Any, key: str, token: int, *commands: Command, keys: Sequence[str] = (), prefix: str = "leasehold_fence:"
) -> list[Any]:
    """Runs the commands in Redis and returns their results, unless the token is stale.

    `client` is a `redis.Redis`, or anything with its `eval`. In a Redis Cluster name the
    commands' keys in `keys`, and put all keys into one slot, the fence's by a `prefix` such
    as `"leasehold_fence:{orders}:"`; all writers of one fence must use the same prefix.

    Raises `StaleToken`. If a command fails, the client's error is raised, and the effects of
    those before it stay.
    """
    reply = client.eval(SCRIPT, 1 + len(keys), prefix + key, *keys, *_arguments(token, commands))
    return _results(reply, key, token)


async def run_async(
    client: Any, key: str, token: int, *commands: Command, keys: Sequence[str] = (), prefix: str = "leasehold_fence:"
) -> list[Any]:
    """`run` for a `redis.asyncio.Redis`."""
    reply = await client.eval(SCRIPT, 1 + len(keys), prefix + key, *keys, *_arguments(token, commands))
    return _results(reply, key, token)


def _arguments(token: int, commands: Sequence[Command]) -> list[Argument]:
    arguments: list[Argument] = [token]
    for command in commands:
        arguments += [len(command), *command]
    return arguments


def _results(reply: list[Any], key: str, token: int) -> list[Any]:
    if reply[0] == 0:
        raise StaleToken(key, token, int(reply[1]))
    return reply[1:]
