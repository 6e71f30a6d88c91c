"""Checks alpha1 with Dapr's Python SDK, against the sidecar that its usual
environment variables name. The checks are those of ../README.md."""

import os
import sys
import time
import uuid

from clients import AsyncClient, Refused, SyncClient, expected_token
from report import Report, expect

STORE = os.environ.get("LOCK_STORE", "locks")
STORE_DOWN = os.environ.get("LOCK_STORE_DOWN", "")
SUCCESS, DOES_NOT_EXIST, BELONGS_TO_OTHERS = 0, 1, 2
EXPIRY_LATENESS_S = 5  # a backend may end a lock this much later than asked


def fresh(name: str) -> str:
    return f"{name}-{uuid.uuid4()}"


def refusal(call) -> Refused:
    try:
        answer = call()
    except Refused as refused:
        return refused
    raise AssertionError(f"answered {answer!r} instead of failing")


def expect_refusal(call, code: str, message: str) -> None:
    refused = refusal(call)
    expect("code", refused.code, code)
    if message not in refused.message:
        raise AssertionError(f"message {refused.message!r} does not contain {message!r}")


def check_life(report: Report, client) -> None:
    resource = fresh("life")

    def attempt(owner: str) -> bool:
        return client.try_lock(STORE, resource, owner, 30)

    report.check("a free resource is granted", lambda: expect("success", attempt("a"), True))
    report.check("a held resource is refused without an error", lambda: expect("success", attempt("b"), False))
    report.check("its own holder is refused too", lambda: expect("success", attempt("a"), False))
    report.check(
        "another resource is granted meanwhile",
        lambda: expect("success", client.try_lock(STORE, fresh("other"), "b", 2), True),
    )
    report.check(
        "an unlock by another owner answers 2",
        lambda: expect("status", client.unlock(STORE, resource, "b"), BELONGS_TO_OTHERS),
    )
    report.check("the lock stands after that", lambda: expect("success", attempt("b"), False))
    report.check(
        "an unlock by the owner answers 0",
        lambda: expect("status", client.unlock(STORE, resource, "a"), SUCCESS),
    )
    report.check(
        "an unlock of a free resource answers 1",
        lambda: expect("status", client.unlock(STORE, resource, "a"), DOES_NOT_EXIST),
    )
    report.check("what was unlocked is granted to another owner", lambda: expect("success", attempt("b"), True))
    client.unlock(STORE, resource, "b")


def check_expiry(report: Report, client) -> None:
    resource = fresh("expiry")
    expiry_s = 2

    def ends_at_its_expiry() -> None:
        start = time.monotonic()
        expect("success", client.try_lock(STORE, resource, "a", expiry_s), True)
        while not client.try_lock(STORE, resource, "b", 30):
            if time.monotonic() - start > expiry_s + EXPIRY_LATENESS_S:
                raise AssertionError("still held")
            time.sleep(0.05)
        held_s = time.monotonic() - start
        if held_s < expiry_s:
            raise AssertionError(f"ended after {held_s:.3f} s")

    report.check("a lock ends at its expiry, not before", ends_at_its_expiry)
    report.check(
        "an unlock after the expiry and a takeover answers 2",
        lambda: expect("status", client.unlock(STORE, resource, "a"), BELONGS_TO_OTHERS),
    )
    client.unlock(STORE, resource, "b")


def check_bad_input(report: Report, client) -> None:
    def odd_names() -> None:
        resource = fresh("a/b c%2F/ключ/鍵")
        expect("success", client.try_lock(STORE, resource, "ich & du", 30), True)
        expect("success", client.try_lock(STORE, resource, "b", 30), False)
        expect("status", client.unlock(STORE, resource, "ich & du"), SUCCESS)

    report.check("a name with slashes, spaces and other scripts is a name", odd_names)
    report.check(
        "a name with || in it is refused",
        lambda: expect_refusal(
            lambda: client.try_lock(STORE, "a||b", "a", 30), "INTERNAL", "failed to try acquiring lock: input key/keyPrefix"
        ),
    )
    # The SDK itself refuses these three before anything is sent.
    report.check(
        "an expiry of zero is refused",
        lambda: expect_refusal(lambda: client.try_lock(STORE, fresh("zero"), "a", 0), "", "expiry_in_seconds"),
    )
    report.check(
        "an empty owner is refused",
        lambda: expect_refusal(lambda: client.try_lock(STORE, fresh("owner"), "", 30), "", "lock_owner"),
    )
    report.check(
        "an empty resource is refused",
        lambda: expect_refusal(lambda: client.try_lock(STORE, "", "a", 30), "", "resource_id"),
    )
    report.check(
        "a try on a store that does not exist is refused by its name",
        lambda: expect_refusal(
            lambda: client.try_lock("nowhere", "r", "a", 30), "INVALID_ARGUMENT", "lock store nowhere not found"
        ),
    )
    report.check(
        "an unlock on a store that does not exist is refused by its name",
        lambda: expect_refusal(lambda: client.unlock("nowhere", "r", "a"), "INVALID_ARGUMENT", "lock store nowhere not found"),
    )


def check_token(report: Report, make) -> None:
    sentence = "a wrong API token is refused"
    if expected_token() is None:
        report.ignore(sentence, "the sidecar expects none: DAPR_API_TOKEN is not set")
        return

    def wrong_token() -> None:
        client = make("wrong")
        try:
            expect_refusal(lambda: client.try_lock(STORE, fresh("token"), "a", 30), "UNAUTHENTICATED", "")
        finally:
            client.close()

    report.check(sentence, wrong_token)


def check_outage(report: Report, client) -> None:
    tried, unlocked = "a try fails while the backend is down", "an unlock fails while the backend is down"
    if not STORE_DOWN:
        for sentence in (tried, unlocked):
            report.ignore(sentence, "LOCK_STORE_DOWN names no store")
        return
    report.check(
        tried,
        lambda: expect_refusal(
            lambda: client.try_lock(STORE_DOWN, fresh("down"), "a", 30), "INTERNAL", "failed to try acquiring lock: "
        ),
    )
    report.check(
        unlocked,
        lambda: expect_refusal(
            lambda: client.unlock(STORE_DOWN, fresh("down"), "a"), "INTERNAL", "failed to release lock: "
        ),
    )


def main() -> int:
    code = 0
    for make in (SyncClient, AsyncClient):
        report = Report(make.name)
        client = make()
        try:
            check_life(report, client)
            check_expiry(report, client)
            check_bad_input(report, client)
            check_token(report, make)
            check_outage(report, client)
        finally:
            client.close()
        code |= report.close()
    return code


if __name__ == "__main__":
    sys.exit(main())
