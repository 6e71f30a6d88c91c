from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from stage import STORE, Stage

from leasehold_client import AsyncLocks, Locks

BACKENDS = os.environ.get("LEASEHOLD_BACKENDS", "memory,redis,etcd").split(",")

for variable in ("DAPR_GRPC_ENDPOINT", "DAPR_GRPC_PORT", "DAPR_API_TOKEN", "DAPR_HTTP_ENDPOINT", "DAPR_HTTP_PORT"):
    os.environ.pop(variable, None)


@pytest.fixture(scope="session", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def stage(backend: str) -> Iterator[Stage]:
    """Shared by the tests that leave the sidecar alone."""
    stage = Stage(backend)
    yield stage
    stage.close()


@pytest.fixture
def own_stage(backend: str) -> Iterator[Stage]:
    """For a test that disturbs the sidecar."""
    stage = Stage(backend)
    yield stage
    stage.close()


@pytest_asyncio.fixture
async def aio(stage: Stage) -> AsyncIterator[AsyncLocks]:
    async with AsyncLocks(STORE, address=stage.address) as locks:
        yield locks


@pytest_asyncio.fixture
async def own_aio(own_stage: Stage) -> AsyncIterator[AsyncLocks]:
    async with AsyncLocks(STORE, address=own_stage.through_proxy) as locks:
        yield locks


@pytest.fixture
def locks(stage: Stage) -> Iterator[Locks]:
    with Locks(STORE, address=stage.address) as locks:
        yield locks


@pytest.fixture
def own_locks(own_stage: Stage) -> Iterator[Locks]:
    with Locks(STORE, address=own_stage.through_proxy) as locks:
        yield locks
