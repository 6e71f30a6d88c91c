// Starts a store, a sidecar and a proxy by the repository's launcher, and reaches past the client.

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface, type Interface } from "node:readline";
import { fileURLToPath } from "node:url";

import { type Client, createClient } from "@connectrpc/connect";
import { createGrpcTransport, Http2SessionManager } from "@connectrpc/connect-node";

import { Inspection } from "../src/generated/leasehold/v1/inspection_pb.js";
import { Locks as Service } from "../src/generated/leasehold/v1/locks_pb.js";
import { Locks, type LocksOptions } from "../src/index.js";

export const STORE = "lockstore";
export const BACKENDS = (process.env.LEASEHOLD_BACKENDS ?? "memory,redis,etcd").split(",");

const LAUNCHER =
  process.env.LEASEHOLD_TEST_SIDECAR ??
  fileURLToPath(new URL("../../../../target/debug/leasehold-test-sidecar", import.meta.url));

type Command = "suspend" | "resume" | "kill" | "stop" | "start" | "stall" | "heal" | "cut" | "vanish";

interface Ports {
  grpcPort: number;
  httpPort: number;
  proxyPort: number;
}

export class Sidecar implements AsyncDisposable {
  /** Calls that the library does not make. */
  readonly service: Client<typeof Service>;
  readonly inspection: Client<typeof Inspection>;
  readonly ports: Ports;
  readonly #process: ChildProcess;
  readonly #answers: AsyncIterator<string>;
  readonly #sessions: Http2SessionManager;
  readonly #clients: Locks[] = [];

  private constructor(process: ChildProcess, answers: AsyncIterator<string>, ports: Ports) {
    this.#process = process;
    this.#answers = answers;
    this.ports = ports;
    const baseUrl = `http://127.0.0.1:${ports.grpcPort}`;
    this.#sessions = new Http2SessionManager(baseUrl);
    const transport = createGrpcTransport({ baseUrl, sessionManager: this.#sessions });
    this.service = createClient(Service, transport);
    this.inspection = createClient(Inspection, transport);
  }

  static async start(backend: string, environment: Record<string, string> = {}): Promise<Sidecar> {
    const launcher = spawn(LAUNCHER, [backend], {
      stdio: ["pipe", "pipe", "inherit"],
      env: { ...process.env, ...environment },
    });
    const failed = once(launcher, "error").then(([error]) => {
      throw new Error(`${LAUNCHER} does not start; LEASEHOLD_TEST_SIDECAR names it`, { cause: error });
    });
    const lines: Interface = createInterface({ input: launcher.stdout });
    const answers = lines[Symbol.asyncIterator]();
    const first = await Promise.race([answers.next(), failed]);
    if (first.done === true) {
      throw new Error(`${LAUNCHER} ended at its start`);
    }
    return new Sidecar(launcher, answers, JSON.parse(first.value) as Ports);
  }

  get address(): string {
    return `127.0.0.1:${this.ports.grpcPort}`;
  }

  /** A client of this sidecar, which ends with it. */
  locks(options: Partial<LocksOptions> = {}): Locks {
    const locks = new Locks({ store: STORE, address: this.address, ...options });
    this.#clients.push(locks);
    return locks;
  }

  /** A client that reaches the sidecar through the proxy. */
  locksThroughProxy(): Locks {
    return this.locks({ address: `127.0.0.1:${this.ports.proxyPort}` });
  }

  async send(command: Command): Promise<void> {
    this.#process.stdin?.write(`${command}\n`);
    const answer = await this.#answers.next();
    if (answer.done === true || answer.value !== "ok") {
      throw new Error(`${command}: ${String(answer.value)}`);
    }
  }

  async force(resourceId: string): Promise<void> {
    await this.service.forceUnlock({ storeName: STORE, resourceId }, { timeoutMs: 30_000 });
  }

  async waiters(resourceId: string): Promise<number> {
    const answer = await this.inspection.listWaiters({ storeName: STORE, resourceId }, { timeoutMs: 30_000 });
    return answer.waiters.length;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const locks of this.#clients) {
      locks.close();
    }
    this.#sessions.abort();
    if (this.#process.exitCode === null) {
      this.#process.stdin?.end();
      await once(this.#process, "exit");
    }
  }
}
