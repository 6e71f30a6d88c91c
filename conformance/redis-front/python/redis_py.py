"""Checks redis-py's lock, in what all libraries share and in what only it offers, and
python-redis-lock."""

import sys
import threading

import redis
import redis_lock
from common_checks import LONG, Checks, granted
from drivers import AsyncClient, Client, Loop, RedisLockClient, SyncClient
from report import Report, expect
from stage import Stage, fresh_key


class OwnChecks:
    """The checks of what only redis-py's lock offers."""

    def __init__(self, report: Report, stage: Stage, subject: str) -> None:
        self.report, self.stage, self.subject = report, stage, f"{subject} on {stage.backend}"

    def run(self) -> None:
        facts = {
            "extend adds to the TTL that is left": self.extend_adds,
            "reacquire sets the first TTL again": self.reacquire,
            "owned and locked are right for the owner and for another": self.owned,
            "a blocking acquire is granted when the holder releases": self.blocking,
        }
        for sentence, body in facts.items():
            self.report.check(self.subject, sentence, body)
        self.lock_without_a_ttl()

    def client(self) -> SyncClient:
        return SyncClient(self.stage.direct, protocol=3)

    def extend_adds(self) -> None:
        client, key = self.client(), fresh_key("adds")
        lock = granted(client, key, 30).lock
        expect("the extension", lock.extend(40), True)
        left = client.pttl(key)
        if not 50_000 < left <= 72_000:
            raise AssertionError(f"PTTL returned {left} ms for 30 s and 40 s more")

    def reacquire(self) -> None:
        client, key = self.client(), fresh_key("reacquire")
        lock = granted(client, key, 30).lock
        expect("the extension", lock.extend(LONG), True)
        expect("reacquire", lock.reacquire(), True)
        left = client.pttl(key)
        if not 10_000 < left <= 32_000:
            raise AssertionError(f"PTTL returned {left} ms after reacquire with 30 s")

    def owned(self) -> None:
        first, second, key = self.client(), self.client(), fresh_key("owned")
        mine = granted(first, key).lock
        other = second.redis.lock(key, timeout=LONG)
        expect("locked, asked by another", other.locked(), True)
        expect("owned, asked by another", other.owned(), False)
        expect("owned, asked by the owner", mine.owned(), True)
        mine.release()
        expect("locked, after the release", other.locked(), False)

    def blocking(self) -> None:
        first, second, key = self.client(), self.client(), fresh_key("blocking")
        held = granted(first, key)
        refused = threading.Event()
        lock = second.redis.lock(key, timeout=LONG, sleep=0.01, thread_local=False)
        acquire_once = lock.do_acquire

        def watched(token: str) -> bool:
            granted_now = acquire_once(token)
            if not granted_now:
                refused.set()
            return granted_now

        lock.do_acquire = watched
        result = []
        waiter = threading.Thread(target=lambda: result.append(lock.acquire(blocking_timeout=20)))
        waiter.start()
        expect("the waiter was refused first", refused.wait(20), True)
        held.release()
        waiter.join()
        expect("the blocking acquire", result, [True])

    def lock_without_a_ttl(self) -> None:
        sentence = "a lock without a TTL is refused"
        if not self.stage.is_front:
            self.report.ignore(self.subject, sentence, "Redis itself grants it")
            return

        def body() -> None:
            key = fresh_key("no-ttl")
            try:
                self.client().redis.lock(key).acquire(blocking=False)
            except redis.ResponseError:
                return
            raise AssertionError("it was granted")

        self.report.check(self.subject, sentence, body)


def main() -> int:
    stage, report, loop = Stage(), Report(), Loop()
    library = f"redis-py {redis.__version__}"

    def client(protocol: int):
        return lambda where: SyncClient(where, protocol)

    def asyncio_client(where: str) -> Client:
        return AsyncClient(loop, where)

    checks = [
        Checks(report, stage, f"{library} RESP2", client(2)),
        Checks(report, stage, f"{library} RESP3", client(3)),
        Checks(report, stage, f"{library} asyncio", asyncio_client),
        OwnChecks(report, stage, library),
        Checks(report, stage, f"python-redis-lock {redis_lock.__version__}", RedisLockClient),
    ]
    threads = [threading.Thread(target=check.run) for check in checks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return report.close()


if __name__ == "__main__":
    sys.exit(main())
