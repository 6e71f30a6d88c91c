// What the client costs: a lock and its unlock beside the same calls without it, in turns; and how
// long after a forced unlock the work is cancelled. Run by `node build/bench/bench.js [BACKEND]`.

import { once } from "node:events";

import { Sidecar, STORE } from "../test/sidecar.js";

const PAIRS = 2000;
const WARM_UP = 200;
const LOSSES = 50;

const [, , backend = "memory"] = process.argv;
await using sidecar = await Sidecar.start(backend);
const locks = sidecar.locks();

async function withClient(name: string): Promise<void> {
  const lock = await locks.lock(name, { wait: "10s" });
  await lock.unlock();
}

async function withoutClient(resourceId: string): Promise<void> {
  const ended = new AbortController();
  const request = { storeName: STORE, resourceId, wait: { seconds: 10n } };
  const stream = sidecar.service.lockStream(request, { signal: ended.signal });
  for await (const message of stream) {
    if (message.lockServerStream.case === "lockAcquired") {
      const { lockId } = message.lockServerStream.value;
      await sidecar.service.unlock({ storeName: STORE, resourceId, lockId }, { timeoutMs: 5000 });
      break;
    }
  }
  ended.abort();
}

async function timed(run: () => Promise<void>): Promise<number> {
  const start = performance.now();
  await run();
  return performance.now() - start;
}

function median(values: number[]): number {
  return values.sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN;
}

const [raw, client]: [number[], number[]] = [[], []];
for (let i = -WARM_UP; i < PAIRS; i += 1) {
  const times = [await timed(() => withoutClient(`raw-${i}`)), await timed(() => withClient(`client-${i}`))];
  if (i >= 0) {
    raw.push(times[0] ?? Number.NaN);
    client.push(times[1] ?? Number.NaN);
  }
}
const [rawMs, clientMs] = [median(raw), median(client)];
console.log(
  `${backend}: lock and unlock, medians of ${PAIRS} in turns: raw ${rawMs.toFixed(3)} ms, ` +
    `client ${clientMs.toFixed(3)} ms, ratio ${(clientMs / rawMs).toFixed(2)}`,
);

const losses: number[] = [];
const pending: Promise<void>[] = [];
for (let i = 0; i < LOSSES; i += 1) {
  const lock = await locks.lock(`loss-${i}`);
  losses.push(
    await timed(async () => {
      const cancelled = once(lock.signal, "abort");
      const forced = sidecar.force(lock.resource); // its answer does not count
      await cancelled;
      pending.push(forced);
    }),
  );
  await lock.unlock().catch(() => undefined);
}
await Promise.all(pending);
console.log(
  `${backend}: from a forced unlock to the cancellation, median of ${LOSSES}: ${median(losses).toFixed(3)} ms`,
);
