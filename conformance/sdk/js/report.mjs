// Runs named checks, prints one line each, and counts.

export class Report {
  #subject;
  #passed = 0;
  #failed = 0;

  constructor(subject) {
    this.#subject = subject;
  }

  async check(sentence, body) {
    try {
      await body();
      this.#passed += 1;
      console.log(`ok      ${this.#subject}: ${sentence}`);
    } catch (error) {
      this.#failed += 1;
      console.log(`FAILED  ${this.#subject}: ${sentence}: ${error}`);
    }
  }

  ignore(sentence, why) {
    console.log(`ignored ${this.#subject}: ${sentence}: ${why}`);
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
