"""The checks of every lock library, on any store."""

import random
import threading
import time
from collections.abc import Callable
from typing import Any

from drivers import Client, Held
from report import Report, eventually, expect
from stage import Stage, fresh_key

Connect = Callable[[str], Client]

CLIENTS = 8
KEYS = 3
# Under stress, one of this many replies is lost.
LOSSES_APART = 20
# How often each lock is released at least.
RELEASES = 10
# Far longer than a check takes, so that a lock does not end by its TTL.
LONG = 60.0
# Short enough to wait for; etcd grants no less than 2 s.
SHORT = 1.0


class Checks:
    def __init__(self, report: Report, stage: Stage, subject: str, connect: Connect) -> None:
        self.report, self.stage, self.connect = report, stage, connect
        self.subject = f"{subject} on {stage.backend}"

    def run(self) -> None:
        facts = {
            "a held lock is refused to another, and granted after its release": self.exclusion,
            "a lock ends at its TTL, and not before": self.expiry,
            "an owner whose lock was lost changes nothing of the next owner's": self.late_owner,
            "an extension sets the TTL": self.extension,
            "a lock whose grant was not answered has one holder, and becomes free": self.lost_grant,
            "a lock whose extension was not answered is held until its release": self.lost_extension,
            "a lock whose release was not answered is free": self.lost_release,
            "no two clients hold a lock at once, with replies lost in between": self.stress,
        }
        for sentence, body in facts.items():
            self.report.check(self.subject, sentence, body)

    def exclusion(self) -> None:
        key, first, second = fresh_key("exclusion"), self.client(), self.client()
        held = granted(first, key)
        expect("the other's try", second.take(key, LONG), None)
        expect("the release", held.release(), True)
        expect("the next release", granted(second, key).release(), True)

    def expiry(self) -> None:
        key, first, second = fresh_key("expiry"), self.client(), self.client()
        _, earliest = granted_for_short(first, key)
        taken_when_free(second, key)
        if time.monotonic() < earliest:
            raise AssertionError("the lock was granted to another before its TTL was over")

    def late_owner(self) -> None:
        key, first, second = fresh_key("late"), self.client(), self.client()
        late, _ = granted_for_short(first, key)
        current = taken_when_free(second, key)
        expect("the late owner's extension", late.extend(LONG), False)
        expect("the late owner's release", late.release(), False)
        expect("another try", first.take(key, LONG), None)
        expect("the owner's release", current.release(), True)

    def extension(self) -> None:
        key, client = fresh_key("extension"), self.client()
        held = granted(client, key, 20)
        expect("the extension", held.extend(LONG), True)
        left = client.pttl(key)
        if not 30_000 < left <= 62_000:
            raise AssertionError(f"PTTL returned {left} ms after an extension to {LONG} s")
        expect("the release", held.release(), True)

    def lost_grant(self) -> None:
        key = fresh_key("lost-grant")
        lossy, direct = self.client(self.stage.lossy), self.client()
        self.stage.lose(key)
        held = tolerant(lambda: lossy.take(key, 3))
        expect("the number of lost replies", self.stage.lost(key), 1)
        if held:
            expect("another's try", direct.take(key, LONG), None)
            held.release()
        taken_when_free(direct, key)

    def lost_extension(self) -> None:
        key = fresh_key("lost-extension")
        lossy, direct = self.client(self.stage.lossy), self.client()
        held = granted(lossy, key)
        self.stage.lose(key)
        tolerant(lambda: held.extend(LONG))
        expect("the number of lost replies", self.stage.lost(key), 1)
        expect("another's try", direct.take(key, LONG), None)
        expect("the release", held.release(), True)
        expect("the next release", granted(direct, key).release(), True)

    def lost_release(self) -> None:
        key = fresh_key("lost-release")
        lossy, direct = self.client(self.stage.lossy), self.client()
        held = granted(lossy, key)
        self.stage.lose(key)
        tolerant(held.release)
        expect("the number of lost replies", self.stage.lost(key), 1)
        taken_when_free(direct, key)

    def stress(self) -> None:
        sections = [Section(fresh_key("stress")) for _ in range(KEYS)]
        for section in sections:
            self.stage.lose(section.key, every=LOSSES_APART, limit=1_000_000)
        clients = [
            self.client(self.stage.lossy if number % 2 else self.stage.direct)
            for number in range(CLIENTS)
        ]

        def round_of_stress() -> bool:
            contend(clients, sections, time.monotonic() + self.stage.stress_seconds)
            for section in sections:
                expect(f"the number of overlaps on {section.key}", section.overlaps, 0)
            lost = sum(self.stage.lost(section.key) for section in sections)
            return lost > 0 and all(section.releases >= RELEASES for section in sections)

        # A slow store gets as many rounds as it needs.
        eventually("enough releases, and a lost reply", round_of_stress)
        for section in sections:
            taken_when_free(self.client(), section.key).release()

    def client(self, where: str | None = None) -> Client:
        return self.connect(where or self.stage.direct)


class Section:
    """What a lock protects. It has the time until which its holder is sure of the lock."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.overlaps = 0
        self.releases = 0
        self._lock = threading.Lock()
        self._sure_until = 0.0

    def enter(self, sure_until: float) -> bool:
        """Whether the client came in time."""
        with self._lock:
            now = time.monotonic()
            if now >= sure_until:
                return False  # The thread was delayed: by now another may hold the lock.
            if now < self._sure_until:
                self.overlaps += 1
            self._sure_until = sure_until
            return True

    def leave(self, sure_until: float) -> None:
        with self._lock:
            if self._sure_until == sure_until:
                self._sure_until = 0.0

    def released(self) -> None:
        with self._lock:
            self.releases += 1


def contend(clients: list[Client], sections: list[Section], ends: float) -> None:
    threads = [
        threading.Thread(target=stress_client, args=(client, sections, ends))
        for client in clients
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def stress_client(client: Client, sections: list[Section], ends: float) -> None:
    while time.monotonic() < ends:
        section = random.choice(sections)
        sure_until = time.monotonic() + SHORT
        held = tolerant(lambda: client.take(section.key, SHORT))
        if not held:
            # Clients that poll pause between their tries.
            time.sleep(random.uniform(0, 0.01))
            continue
        in_time = section.enter(sure_until)
        if random.random() < 0.1:
            tolerant(lambda: held.extend(SHORT))
        # The lock is held for a while, so that an overlap shows.
        time.sleep(random.uniform(0, 0.002))
        section.leave(sure_until)
        if tolerant(held.release) and in_time:
            section.released()


def granted(client: Client, key: str, seconds: float = LONG) -> Held:
    held = client.take(key, seconds)
    if not held:
        raise AssertionError(f"{key} was not granted")
    return held


def granted_for_short(client: Client, key: str) -> tuple[Held, float]:
    """The lock, and until when it lasts at least.

    A library refuses a grant that arrives after its TTL, which a busy machine makes happen.
    """

    def attempt() -> tuple[Held, float] | None:
        until = time.monotonic() + SHORT
        held = client.take(key, SHORT)
        return (held, until) if held else None

    return eventually(f"{key} is granted", attempt)


def taken_when_free(client: Client, key: str) -> Held:
    return eventually(f"{key} becomes free", lambda: client.take(key, LONG))


def tolerant(call: Callable[[], Any]) -> Any:
    """None where the library gave up on a reply that was lost."""
    try:
        return call()
    except Exception:  # each library has its own errors for this
        return None
