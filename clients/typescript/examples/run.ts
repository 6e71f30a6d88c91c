// Runs the examples against their own sidecar, and causes their losses.

import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

import { Sidecar } from "../test/sidecar.js";

const PATIENCE_MS = 30_000;

/** One example that runs, and what it has printed. */
class Example {
  readonly output: string[] = [];
  readonly process: ChildProcess;
  readonly #watchers = new Set<() => void>();

  constructor(sidecar: Sidecar, name: string, ...rest: string[]) {
    const child = spawn(process.execPath, [fileURLToPath(new URL(`${name}.js`, import.meta.url)), ...rest], {
      stdio: ["ignore", "pipe", "inherit"],
      env: { ...process.env, DAPR_GRPC_ENDPOINT: sidecar.address },
    });
    this.process = child;
    createInterface({ input: child.stdout }).on("line", (line) => {
      this.output.push(line);
      for (const watcher of this.#watchers) {
        watcher();
      }
    });
  }

  async prints(pattern: RegExp): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      const fail = setTimeout(() => {
        reject(new Error(`${pattern} is not in ${JSON.stringify(this.output)}`));
      }, PATIENCE_MS);
      const look = () => {
        if (this.output.some((line) => pattern.test(line))) {
          clearTimeout(fail);
          this.#watchers.delete(look);
          resolve();
        }
      };
      this.#watchers.add(look);
      look();
    });
  }

  async ends(): Promise<void> {
    if (this.process.exitCode === null) {
      await once(this.process, "exit", { signal: AbortSignal.timeout(PATIENCE_MS) });
    }
    assert.equal(this.process.exitCode, 0);
  }
}

await using sidecar = await Sidecar.start("memory");

const worker = new Example(sidecar, "worker");
await worker.prints(/^charged order 3 /);
await sidecar.force("invoice-run");
await worker.prints(/^stopped in the middle: forced$/);
await worker.ends();

const first = new Example(sidecar, "leader", "ann");
await first.prints(/^ann leads$/);
const second = new Example(sidecar, "leader", "bob");
while ((await sidecar.waiters("leader")) === 0) {
  await new Promise((resolve) => setTimeout(resolve, 20));
}
assert.deepEqual(second.output, []);
first.process.kill("SIGTERM");
await first.prints(/^ann has ended$/);
await second.prints(/^bob leads$/);
await sidecar.force("leader");
await second.prints(/^bob does not lead: forced$/);
second.process.kill("SIGTERM");
await Promise.all([first.ends(), second.ends()]);
