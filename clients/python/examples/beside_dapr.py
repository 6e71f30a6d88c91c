"""Takes a lock in a process that uses the Dapr SDK too, and prints its token."""

import os

from dapr.clients import DaprClient
from testing import sidecar

from leasehold_client import Locks

with sidecar() as ports:
    os.environ["DAPR_GRPC_PORT"] = str(ports["grpcPort"])
    os.environ["DAPR_HTTP_PORT"] = str(ports["httpPort"])
    with DaprClient() as dapr, Locks("lockstore") as locks, locks.lock("order-1") as lock:
        assert not dapr.try_lock("lockstore", "order-1", "somebody else", 10).success
        print(f"the Dapr SDK is refused what the client holds with the token {lock.token}")
