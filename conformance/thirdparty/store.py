"""A small third-party lock store, in one file.

It serves the core of the alpha2 protocol from memory, and FENCING beyond it.
It shares no code with leasehold, so that it checks the conformance suite as
much as the suite checks it. Usage: store.py STUBS_FOLDER SOCKET
"""

import asyncio
import itertools
import math
import re
import sys
import time
import uuid
from collections import deque

sys.path.insert(0, sys.argv[1])

import grpc
from dapr.proto.components.v1 import common_pb2, lock_pb2, lock_pb2_grpc
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2
from grpc_reflection.v1alpha import reflection

SERVICE = "dapr.proto.components.v1.LockStore"
NAME_BYTES_MAX, RESOURCE_BYTES_MAX, TTL_MIN = 256, 1024, 0.1
GO_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|h|m|s))+")
GO_UNITS = {"h": 3600, "m": 60, "s": 1, "ms": 0.001}


class Refusal(Exception):
    """An answer of the protocol's error table."""

    def __init__(self, code, reason, message, fields=(), **metadata):
        super().__init__(message)
        self.code = code
        self.status = status_pb2.Status(code=code.value[0], message=message)
        info = error_details_pb2.ErrorInfo(reason=reason, domain="dapr.io", metadata=metadata)
        self.status.details.add().Pack(info)
        if fields:
            bad = error_details_pb2.BadRequest()
            for field in fields:
                bad.field_violations.add(field=field, description=message)
            self.status.details.add().Pack(bad)


def invalid(field, message):
    code = grpc.StatusCode.INVALID_ARGUMENT
    return Refusal(code, "INVALID_REQUEST", f"{field} {message}", [field])


def not_found(held):
    message = "another holds the resource" if held else "nobody holds the resource"
    code = grpc.StatusCode.NOT_FOUND
    return Refusal(code, "LOCK_NOT_FOUND", message, held=str(held).lower())


def unsupported(what):
    return Refusal(grpc.StatusCode.UNIMPLEMENTED, "UNSUPPORTED", f"this store has no {what}")


def go_duration(text):
    if not GO_DURATION.fullmatch(text):
        raise ValueError(text)
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|h|m|s)", text)
    return sum(float(count) * GO_UNITS[unit] for count, unit in parts)


class Grant:
    def __init__(self, lock_id, holder, token):
        self.lock_id, self.holder, self.token = lock_id, holder, token
        self.made_at, self.timer = time.monotonic(), None


class Locks:
    """The locks of one instance. Everything happens on one event loop, so
    what runs between two awaits is atomic."""

    def __init__(self):
        self.grants, self.queues = {}, {}
        # Begins with the clock, so that a restart repeats no token.
        self.tokens = itertools.count(time.time_ns() // 1000)

    def configure(self, properties):
        found, bad = {"ttl": 30.0, "maxTTL": 24 * 3600.0}, []
        for name in found:
            try:
                found[name] = go_duration(properties[name]) if name in properties else found[name]
            except ValueError:
                bad.append(name)
        if bad:
            message = f"not a duration such as 30s: {', '.join(bad)}"
            raise Refusal(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_METADATA", message, bad)
        self.ttl_default, self.ttl_max = found["ttl"], found["maxTTL"]

    def checked_ttl(self, request):
        ttl = request.ttl
        if abs(ttl.nanos) > 999_999_999 or ttl.seconds * ttl.nanos < 0:
            raise invalid("ttl", "has nanos out of range")
        seconds = ttl.seconds + ttl.nanos / 1e9
        if seconds > self.ttl_max:
            raise invalid("ttl", f"is above {self.ttl_max} s")
        return self.ttl_default if seconds <= 0 else max(seconds, TTL_MIN)

    def grant(self, resource, request, ttl):
        lock_id = request.lock_id or str(uuid.uuid4())
        grant = Grant(lock_id, request.holder, next(self.tokens))
        self.grants[resource] = grant
        self.restart(resource, grant, ttl)
        return grant

    def restart(self, resource, grant, ttl):
        if grant.timer:
            grant.timer.cancel()
        grant.timer = asyncio.get_running_loop().call_later(ttl, self.end, resource)

    def end(self, resource):
        self.grants.pop(resource).timer.cancel()
        queue = self.queues.get(resource)
        if queue:
            request, ttl, turn = queue.popleft()
            turn.set_result(self.grant(resource, request, ttl))
        if not queue:
            self.queues.pop(resource, None)

    async def wait(self, resource, request, ttl, seconds):
        turn = asyncio.get_running_loop().create_future()
        place = (request, ttl, turn)
        self.queues.setdefault(resource, deque()).append(place)
        try:
            await asyncio.wait({turn}, timeout=seconds)
        except asyncio.CancelledError:
            if turn.done():
                self.end(resource)
            else:
                self.queues[resource].remove(place)
            raise
        if turn.done():
            return turn.result()
        self.queues[resource].remove(place)
        message = "the deadline passed while waiting; nothing is held"
        raise Refusal(grpc.StatusCode.DEADLINE_EXCEEDED, "WAIT_DEADLINE", message)

    def owned(self, request):
        grant = self.grants.get(request.resource_id)
        if not grant or grant.lock_id != request.lock_id:
            raise not_found(held=grant is not None)
        return grant


def check(request, *, names=(), lock_id_needed=False):
    resource = request.resource_id
    if not 1 <= len(resource.encode()) <= RESOURCE_BYTES_MAX:
        raise invalid("resource_id", f"must have 1 to {RESOURCE_BYTES_MAX} bytes")
    if any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 for c in resource):
        raise invalid("resource_id", "must have no control characters")
    for name in ("lock_id", *names):
        if len(getattr(request, name).encode()) > NAME_BYTES_MAX:
            raise invalid(name, f"must have at most {NAME_BYTES_MAX} bytes")
    if lock_id_needed and not request.lock_id:
        raise invalid("lock_id", "must not be empty")
    if "mode" in names_of(request) and request.mode != lock_pb2.LOCK_MODE_EXCLUSIVE:
        if request.mode == lock_pb2.LOCK_MODE_SHARED:
            raise unsupported("shared grants")
        raise invalid("mode", "is unknown")


def names_of(message):
    return message.DESCRIPTOR.fields_by_name


def duration(seconds):
    # Rounded up, so that no grant is shorter than requested.
    nanos = math.ceil(seconds * 1e9)
    return Duration(seconds=nanos // 1_000_000_000, nanos=nanos % 1_000_000_000)


def answered(handler):
    """Turns a Refusal into a gRPC status with its details."""

    async def answer(self, request, context):
        try:
            return await handler(self, request, context)
        except Refusal as refusal:
            details = (("grpc-status-details-bin", refusal.status.SerializeToString()),)
            await context.abort(refusal.code, str(refusal), details)

    return answer


class LockStore(lock_pb2_grpc.LockStoreServicer):
    def __init__(self):
        self.instances = {}

    def locks(self, context):
        name = instance_name(context)
        if name not in self.instances:
            message = f"instance {name!r}: send Init first"
            raise Refusal(grpc.StatusCode.FAILED_PRECONDITION, "NOT_INITIALIZED", message)
        return self.instances[name]

    @answered
    async def Init(self, request, context):
        name = instance_name(context)
        locks = self.instances.get(name) or Locks()
        locks.configure(request.metadata.properties)
        self.instances[name] = locks
        return lock_pb2.LockStoreInitResponse()

    async def Features(self, request, context):
        return common_pb2.FeaturesResponse(features=["FENCING"])

    async def Ping(self, request, context):
        return common_pb2.PingResponse()

    @answered
    async def TryLock(self, request, context):
        locks = self.locks(context)
        check(request, names=("request_id", "holder"))
        ttl, held = locks.checked_ttl(request), locks.grants.get(request.resource_id)
        if held:
            label = {"holder": held.holder} if held.holder else {}
            message = "the resource is held"
            raise Refusal(grpc.StatusCode.ABORTED, "RESOURCE_LOCKED", message, **label)
        return granted(locks.grant(request.resource_id, request, ttl), ttl)

    @answered
    async def Lock(self, request, context):
        arrived_at, resource = time.monotonic(), request.resource_id
        locks = self.locks(context)
        check(request, names=("request_id", "holder"))
        ttl = locks.checked_ttl(request)
        if resource not in locks.grants:
            return granted(locks.grant(resource, request, ttl), ttl)
        left = context.time_remaining()
        if left is not None:
            # A little early, so that the answer arrives, also on a busy machine.
            left = max(0, left - min(left / 10, 0.05 + left / 25, 0.25))
        grant = await locks.wait(resource, request, ttl, left)
        return granted(grant, ttl, grant.made_at - arrived_at)

    @answered
    async def RenewLock(self, request, context):
        locks = self.locks(context)
        check(request, lock_id_needed=True)
        ttl = locks.checked_ttl(request)
        locks.restart(request.resource_id, locks.owned(request), ttl)
        return lock_pb2.RenewLockResponse(ttl=duration(ttl))

    @answered
    async def Unlock(self, request, context):
        locks = self.locks(context)
        check(request, lock_id_needed=not request.force)
        if request.force:
            raise unsupported("unlock by force")
        locks.owned(request)
        locks.end(request.resource_id)
        return lock_pb2.UnlockResponse()


def instance_name(context):
    return dict(context.invocation_metadata()).get("x-component-instance", "")


def granted(grant, ttl, waited=0):
    return lock_pb2.LockResponse(
        lock_id=grant.lock_id,
        fencing_token=grant.token,
        ttl=duration(ttl),
        waited=duration(waited),
    )


async def main():
    server = grpc.aio.server()
    lock_pb2_grpc.add_LockStoreServicer_to_server(LockStore(), server)
    reflection.enable_server_reflection([SERVICE, reflection.SERVICE_NAME], server)
    server.add_insecure_port(f"unix:{sys.argv[2]}")
    await server.start()
    await server.wait_for_termination()


asyncio.run(main())
