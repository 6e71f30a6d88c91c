"""Checks all but locks with Dapr's Python SDK, through a sidecar that serves
the locks itself. The checks are those of ../README.md."""

import os
import queue
import sys
import time
import uuid
import warnings
from contextlib import ExitStack

import grpc
from dapr.clients import DaprClient
from dapr.clients.grpc._response import TopicEventResponse
from dapr.clients.health import DaprHealth
from report import Report, expect

LOCK_STORE = os.environ.get("LOCK_STORE", "locks")
STATE_STORES = os.environ["STATE_STORES"].split(",")
SECRET_STORE, SECRET_KEY, SECRET_VALUE = (os.environ[f"SECRET_{part}"] for part in ("STORE", "KEY", "VALUE"))
PUBSUB = os.environ["PUBSUB"]
APP_ID = os.environ["DAPR_APP_ID"]
DELIVERY_LIMIT_S = 15


def fresh(name: str) -> str:
    return f"{name}-{uuid.uuid4()}"


def check_lock(report: Report, dapr: DaprClient) -> None:
    def lock_is_granted_and_released() -> None:
        resource = fresh("passthrough")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            expect("success", bool(dapr.try_lock(LOCK_STORE, resource, "a", 30)), True)
            expect("success", bool(dapr.try_lock(LOCK_STORE, resource, "b", 30)), False)
            expect("status", dapr.unlock(LOCK_STORE, resource, "a").status.value, 0)

    report.check("a lock is granted, refused and released beside it", lock_is_granted_and_released)


def check_state(report: Report, dapr: DaprClient, store: str) -> None:
    def is_saved_read_and_deleted() -> None:
        key = fresh("key")
        dapr.save_state(store, key, "value of ключ")
        expect("value", dapr.get_state(store, key).text(), "value of ключ")
        dapr.delete_state(store, key)
        expect("value", dapr.get_state(store, key).data, b"")

    def a_stale_etag_is_refused() -> None:
        key = fresh("etag")
        dapr.save_state(store, key, "first")
        stale = dapr.get_state(store, key).etag
        dapr.save_state(store, key, "second", etag=stale)
        try:
            dapr.save_state(store, key, "third", etag=stale)
        except grpc.RpcError as error:
            expect("code", error.code(), grpc.StatusCode.ABORTED)
        else:
            raise AssertionError("it was saved")
        expect("value", dapr.get_state(store, key).text(), "second")

    report.check(f"state is saved, read and deleted in {store}", is_saved_read_and_deleted)
    report.check(f"a stale ETag is refused in {store}", a_stale_etag_is_refused)


def published_until_it_arrives(dapr: DaprClient, topic: str, arrived: queue.Queue) -> object:
    """The subscription may begin later than the call that makes it ends."""
    deadline = time.monotonic() + DELIVERY_LIMIT_S
    while True:
        dapr.publish_event(PUBSUB, topic, '{"order": 1}', data_content_type="application/json")
        try:
            return arrived.get(timeout=0.5)
        except queue.Empty:
            if time.monotonic() > deadline:
                raise AssertionError("no event arrived") from None


def check_events(report: Report, dapr: DaprClient, closing: ExitStack) -> None:
    def event_arrives() -> None:
        topic, arrived = fresh("topic"), queue.Queue()

        def remember(message) -> TopicEventResponse:
            arrived.put(message.data())
            return TopicEventResponse("success")

        # Closed at the end: daprd 1.18.2 may panic if a subscription ends while
        # it is reading the answer to an event.
        closing.callback(dapr.subscribe_with_handler(PUBSUB, topic, remember))
        expect("event", published_until_it_arrives(dapr, topic, arrived), {"order": 1})

    report.check("a published event reaches a streaming subscription", event_arrives)


def check_surroundings(report: Report, dapr: DaprClient) -> None:
    def metadata_is_daprds() -> None:
        metadata = dapr.get_metadata()
        expect("app ID", metadata.application_id, APP_ID)
        named = {component.name for component in metadata.registered_components}
        missing = {*STATE_STORES, SECRET_STORE, PUBSUB} - named
        expect("components that the metadata lacks", missing, set())

    report.check(
        "a secret is read",
        lambda: expect("secret", dapr.get_secret(SECRET_STORE, SECRET_KEY).secret, {SECRET_KEY: SECRET_VALUE}),
    )
    report.check("the metadata names daprd's components", metadata_is_daprds)
    report.check("the SDK's health check passes", DaprHealth.wait_for_sidecar)


def main() -> int:
    report = Report("python sync")
    with DaprClient() as dapr, ExitStack() as closing:
        check_events(report, dapr, closing)
        check_lock(report, dapr)
        for store in STATE_STORES:
            check_state(report, dapr, store)
        check_surroundings(report, dapr)
    return report.close()


if __name__ == "__main__":
    sys.exit(main())
