// Runs named checks, prints one line each, and counts.

import { setTimeout as sleep } from "node:timers/promises";

export class Report {
  #passed = 0;
  #failed = 0;

  async check(subject, sentence, body) {
    try {
      await body();
      this.#passed += 1;
      console.log(`ok: ${subject}: ${sentence}`);
    } catch (error) {
      this.#failed += 1;
      console.log(`FAILED: ${subject}: ${sentence}: ${error}`);
    }
  }

  ignore(subject, sentence, why) {
    console.log(`ignored: ${subject}: ${sentence}: ${why}`);
  }

  // Prints the totals and returns the exit code.
  close() {
    console.log(`${this.#passed} passed, ${this.#failed} failed`);
    return this.#failed > 0 || this.#passed === 0 ? 1 : 0;
  }
}

export function expect(what, got, want) {
  if (got !== want) {
    throw new Error(`${what} is ${JSON.stringify(got)}, not ${JSON.stringify(want)}`);
  }
}

// Repeats the attempt until it returns something.
export async function eventually(what, attempt) {
  const deadline = Date.now() + 60_000;
  for (;;) {
    const result = await attempt();
    if (result) return result;
    if (Date.now() > deadline) throw new Error(`not within a minute: ${what}`);
    await sleep(20);
  }
}
