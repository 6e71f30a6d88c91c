"""The SDK's two clients behind one shape, so that both run the same checks."""

import asyncio
import os
import warnings

import grpc
from dapr.aio.clients import DaprClient as AsyncDaprClient
from dapr.clients import DaprClient
from dapr.conf import settings

CALL_TIMEOUT_S = 15


class Refused(Exception):
    """A call that ended with an error: its gRPC code (empty if the SDK
    refused it before sending) and its text."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code or 'SDK'}: {message}")
        self.code = code
        self.message = message


def as_refused(error: Exception) -> Refused:
    if isinstance(error, grpc.RpcError):
        return Refused(error.code().name, error.details() or "")
    return Refused("", str(error))


class SyncClient:
    name = "python sync"

    def __init__(self, token: str | None = None) -> None:
        self._client = with_token(token, DaprClient)

    def try_lock(self, store: str, resource: str, owner: str, expiry_s: int) -> bool:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            try:
                return bool(self._client.try_lock(store, resource, owner, expiry_s))
            except (grpc.RpcError, ValueError) as error:
                raise as_refused(error) from error

    def unlock(self, store: str, resource: str, owner: str) -> int:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            try:
                return self._client.unlock(store, resource, owner).status.value
            except (grpc.RpcError, ValueError) as error:
                raise as_refused(error) from error

    def close(self) -> None:
        self._client.close()


class AsyncClient:
    name = "python async"

    def __init__(self, token: str | None = None) -> None:
        self._loop = asyncio.new_event_loop()
        self._client = self._loop.run_until_complete(self._open(token))

    async def _open(self, token: str | None) -> AsyncDaprClient:
        return with_token(token, AsyncDaprClient)

    def _run(self, call):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            try:
                return self._loop.run_until_complete(asyncio.wait_for(call, CALL_TIMEOUT_S))
            except (grpc.RpcError, ValueError) as error:
                raise as_refused(error) from error

    def try_lock(self, store: str, resource: str, owner: str, expiry_s: int) -> bool:
        return bool(self._run(self._client.try_lock(store, resource, owner, expiry_s)))

    def unlock(self, store: str, resource: str, owner: str) -> int:
        return self._run(self._client.unlock(store, resource, owner)).status.value

    def close(self) -> None:
        self._loop.run_until_complete(self._client.close())
        self._loop.close()


def with_token(token: str | None, make):
    """Makes a client that sends this token instead of the environment's."""
    if token is None:
        return make()
    usual = settings.DAPR_API_TOKEN
    settings.DAPR_API_TOKEN = token
    try:
        return make()
    finally:
        settings.DAPR_API_TOKEN = usual


def expected_token() -> str | None:
    return os.environ.get("DAPR_API_TOKEN") or None
