"""A fence in a state store of Dapr, for the values of one key.

    state = dapr_state.FencedState("statestore")
    state.update("order-1", lock.fence_key, lock.token, lambda order: {**(order or {}), "paid": True})

A value is saved as `{"fence": KEY, "token": "TOKEN", "value": VALUE}` and only if nobody has
saved it since it was read (ETag, first-write), so that a smaller token never overwrites a
greater one. All writers of the key must go through the fence. The state store must support
ETags.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .._address import metadata
from ..errors import LeaseholdError, StaleToken

_CONFLICT = 409
_ATTEMPTS = 10


@dataclass(frozen=True)
class Stored:
    """What is stored under a key: `token` is the token that it was saved with."""

    value: Any
    token: int
    fence: str
    etag: str


class FencedState:
    """A state store, over Dapr's HTTP API.

    `endpoint` is daprd's or the sidecar's URL; by default `DAPR_HTTP_ENDPOINT`, else 127.0.0.1
    and `DAPR_HTTP_PORT`, else port 3500. `api_token` is by default `DAPR_API_TOKEN`.
    `timeout` is for each request, in seconds.
    """

    def __init__(
        self, store: str, *, endpoint: str | None = None, api_token: str | None = None, timeout: float = 10
    ) -> None:
        environment = os.environ
        base = endpoint or environment.get("DAPR_HTTP_ENDPOINT")
        base = base or f"http://127.0.0.1:{environment.get('DAPR_HTTP_PORT') or '3500'}"
        self._url = f"{base.rstrip('/')}/v1.0/state/{urllib.parse.quote(store, safe='')}"
        self._token = dict(metadata(api_token)).get("dapr-api-token")
        self._timeout = timeout
        # No proxy: the sidecar is local.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def load(self, key: str) -> Stored | None:
        """The value of the key, or `None`. Raises `LeaseholdError` if it has no fence."""
        text, etag = self._call("GET", f"/{urllib.parse.quote(key, safe='')}?consistency=strong")
        if not text:
            return None
        try:
            stored = json.loads(text)
            return Stored(stored["value"], int(stored["token"]), stored["fence"], etag)
        except (ValueError, TypeError, KeyError) as error:
            raise LeaseholdError(f"the state {key!r} was saved without a fence", reason="NOT_FENCED") from error

    def update(self, key: str, fence_key: str, token: int, change: Callable[[Any], Any]) -> Any:
        """Passes the value to `change`, or `None` if there is none; saves and returns the result.

        `change` is called again if somebody else saves meanwhile. Raises `StaleToken`;
        `LeaseholdError` with the reason `NOT_FENCED` if the value has no fence or another
        lock's, `CONFLICT` after ten attempts, and `UNAVAILABLE` or Dapr's error code if a
        request fails.
        """
        for _ in range(_ATTEMPTS):
            stored = self.load(key)
            if stored is not None and stored.fence != fence_key:
                raise LeaseholdError(f"the state {key!r} is fenced by {stored.fence!r}", reason="NOT_FENCED")
            if stored is not None and stored.token > token:
                raise StaleToken(fence_key, token, stored.token)
            value = change(None if stored is None else stored.value)
            if self._save(key, {"fence": fence_key, "token": str(token), "value": value}, stored):
                return value
        raise LeaseholdError(f"the state {key!r} was saved by others {_ATTEMPTS} times", reason="CONFLICT")

    def _save(self, key: str, value: Any, stored: Stored | None) -> bool:
        item: dict[str, Any] = {
            "key": key,
            "value": value,
            "options": {"concurrency": "first-write", "consistency": "strong"},
        }
        if stored is not None:
            item["etag"] = stored.etag
        try:
            self._call("POST", "", [item])
        except _Conflict:
            return False
        except LeaseholdError:
            # Some stores, Redis among them, report a lost race of first-write as a failure.
            if stored is None and self.load(key) is not None:
                return False
            raise
        return True

    def _call(self, method: str, path: str, body: Any = None) -> tuple[str, str]:
        headers = {"content-type": "application/json"}
        if self._token:
            headers["dapr-api-token"] = self._token
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data=data, headers=headers, method=method)
        try:
            with self._opener.open(request, timeout=self._timeout) as answer:
                return answer.read().decode(), answer.headers.get("etag", "")
        except urllib.error.HTTPError as error:
            text = error.read().decode(errors="replace")
            if error.code == _CONFLICT:
                raise _Conflict(text, reason="CONFLICT") from error
            raise LeaseholdError(f"HTTP {error.code}: {text}", reason=_code(text)) from error
        except OSError as error:
            raise LeaseholdError(f"the sidecar cannot be reached: {error}", reason="UNAVAILABLE") from error


class _Conflict(LeaseholdError):
    """Somebody else has saved since the value was read."""


def _code(text: str) -> str:
    try:
        return str(json.loads(text)["errorCode"])
    except (ValueError, TypeError, KeyError):
        return "UNKNOWN"
