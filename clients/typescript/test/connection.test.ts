// How the sidecar is reached, and what that means for the process.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer as createHttp2Server } from "node:http2";
import { type AddressInfo, connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { setImmediate } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { createGrpcTransport, Http2SessionManager } from "@connectrpc/connect-node";

import { Locks, type LocksOptions } from "../src/index.js";
import { cancelled, eventually, fresh, got, loss, onEachBackend, refusal } from "./helpers.js";
import { Sidecar, STORE } from "./sidecar.js";

const run = promisify(execFile);
const SCRIPT = fileURLToPath(new URL("lifetime.js", import.meta.url));

/** A client made while the environment has these variables. */
function inEnvironment(variables: Record<string, string>, options: Partial<LocksOptions> = {}): Locks {
  const before = { ...process.env };
  for (const name of ["DAPR_GRPC_ENDPOINT", "DAPR_GRPC_PORT", "DAPR_API_TOKEN"]) {
    Reflect.deleteProperty(process.env, name);
  }
  Object.assign(process.env, variables);
  try {
    return new Locks({ store: STORE, ...options });
  } finally {
    for (const name of Object.keys(variables)) {
      Reflect.deleteProperty(process.env, name);
    }
    Object.assign(process.env, before);
  }
}

onEachBackend((backend, sidecar) => {
  test("the_address_and_token_come_from_the_environment", async () => {
    const token = "a-token";
    await using own = await Sidecar.start(backend, { DAPR_API_TOKEN: token });
    const port = String(own.ports.grpcPort);
    const authority = { DAPR_GRPC_ENDPOINT: own.address, DAPR_API_TOKEN: token };
    const clients = [
      inEnvironment(authority),
      inEnvironment({ ...authority, DAPR_GRPC_ENDPOINT: `http://localhost:${port}` }),
      inEnvironment({ DAPR_GRPC_PORT: port, DAPR_API_TOKEN: token }),
      inEnvironment({ ...authority, DAPR_GRPC_PORT: "1" }), // the endpoint counts
      inEnvironment(
        { DAPR_GRPC_PORT: "1", DAPR_API_TOKEN: "wrong" },
        { address: own.address, apiToken: token },
      ),
    ];
    const use = async (locks: Locks) => {
      // Long enough that every kind of call is made.
      await locks.with(fresh(), { ttl: "6s" }, async (lock) => {
        await new Promise((resolve) => setTimeout(resolve, 1_200));
        lock.check();
      });
      locks.close();
    };
    await Promise.all(clients.map(use));
    for (const without of [
      inEnvironment({ DAPR_GRPC_PORT: port }),
      inEnvironment(authority, { apiToken: "wrong" }),
    ]) {
      await refusal(without.lock(fresh()), "UNAUTHENTICATED");
      without.close();
    }
  });

  test("a_sidecar_that_is_not_there_is_named", async () => {
    const message = async (locks: Locks) => (await refusal(locks.lock(fresh()), "UNAVAILABLE")).message;
    const start = 'start "leasehold sidecar", or';
    assert.equal(
      await message(inEnvironment({ DAPR_GRPC_ENDPOINT: "127.0.0.1:1" })),
      `no sidecar at 127.0.0.1:1: connection refused; ${start} set DAPR_GRPC_ENDPOINT or DAPR_GRPC_PORT`,
    );
    assert.equal(
      await message(new Locks({ store: STORE, address: "localhost:1" })),
      `no sidecar at localhost:1: connection refused; ${start} give another address`,
    );
    assert.equal(
      await message(new Locks({ store: STORE, address: "unix:/nowhere/socket" })),
      `no sidecar at unix:/nowhere/socket: no such file or directory; ${start} give another address`,
    );
    assert.match(
      await message(new Locks({ store: STORE, address: "nowhere.invalid:1" })),
      /^no sidecar at nowhere\.invalid:1: /,
    );
    const transport = createGrpcTransport({ baseUrl: "http://127.0.0.1:1" });
    assert.equal(
      await message(new Locks({ store: STORE, transport })),
      `no sidecar: connection refused; ${start} check the address of the transport`,
    );
  });

  test("an_http_port_is_named", async () => {
    const address = `127.0.0.1:${sidecar().ports.httpPort}`;
    const { message } = await refusal(sidecar().locks({ address }).lock(fresh()), "UNIMPLEMENTED");
    assert(message.startsWith(`${address} is the sidecar's HTTP port; `), message);
    assert.match(message, /DAPR_GRPC_PORT/);
  });

  test("a_reset_before_the_response_is_noticed", async () => {
    const server = createHttp2Server().on("stream", (stream) => {
      stream.close(); // with NO_ERROR
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address() as AddressInfo;
    const locks = new Locks({ store: STORE, address: `127.0.0.1:${port}` });
    const { message } = await refusal(locks.lock(fresh(), { wait: 0 }), "UNAVAILABLE");
    assert.equal(message, "the stream broke: the stream ended before its response");
    locks.close();
    server.close();
  });

  test("a_unix_socket_is_an_address", async () => {
    const folder = mkdtempSync(join(tmpdir(), "leasehold-"));
    const path = join(folder, "grpc.socket");
    const proxy = createServer((socket) => {
      const upstream = connect(sidecar().ports.grpcPort, "127.0.0.1");
      socket.pipe(upstream).pipe(socket);
      socket.on("error", () => upstream.destroy());
      upstream.on("error", () => socket.destroy());
    });
    await new Promise<void>((resolve) => proxy.listen(path, resolve));
    for (const address of [`unix:${path}`, `unix://${path}`]) {
      const locks = sidecar().locks({ address });
      await locks.with(fresh(), (lock) => {
        lock.check();
      });
      locks.close();
    }
    proxy.close();
    rmSync(folder, { recursive: true });
  });

  test("a_channel_of_the_caller_is_used_and_left_open", async () => {
    const baseUrl = `http://${sidecar().address}`;
    const sessionManager = new Http2SessionManager(baseUrl);
    let requests = 0;
    const transport = createGrpcTransport({
      baseUrl,
      sessionManager,
      defaultTimeoutMs: 500, // which would end the stream
      interceptors: [
        (next) => (request) => {
          requests += 1;
          return next(request);
        },
      ],
    });
    const locks = new Locks({ store: STORE, address: "127.0.0.1:1", transport });
    await locks.with(fresh(), { ttl: "20s" }, async (lock) => {
      await new Promise((resolve) => setTimeout(resolve, 1000));
      lock.check();
    });
    assert(requests >= 2, String(requests));
    await endsByClose(locks);
    await eventually("no stream is left", () => sessionManager.state() === "idle");
    sessionManager.abort();
  });

  async function endsByClose(locks: Locks): Promise<void> {
    const name = fresh();
    const lock = got(await locks.tryLock(name));
    const waiting = locks.lock(name);
    await eventually("one waits", async () => (await sidecar().waiters(name)) === 1);
    locks.close();
    assert.equal((await loss(cancelled(lock))).cause, "disconnected");
    await loss(lock.unlock());
    for (const refused of [
      waiting,
      locks.lock(name),
      locks.tryLock(name),
      locks.with(name, () => undefined),
    ]) {
      assert.equal((await refusal(refused, "CANCELLED")).message, "the client is closed");
    }
    await (await sidecar().locks().lock(name)).unlock();
  }

  test("a_closed_client_ends_its_locks_and_waits_and_takes_no_more", async () => {
    await endsByClose(sidecar().locks());
  });

  test("a_wait_on_a_replaced_connection_goes_on", async () => {
    const server = createServer(); // does not answer the handshake
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address() as AddressInfo;
    const locks = new Locks({ store: STORE, address: `https://127.0.0.1:${String(port)}` });
    let isWaiting = true;
    const waiting = locks.lock(fresh()).finally(() => {
      isWaiting = false;
    });
    waiting.catch(() => undefined);
    await refusal(locks.tryLock(fresh()), "UNAVAILABLE");
    await setImmediate();
    assert(isWaiting);
    locks.close();
    await refusal(waiting, "CANCELLED");
    server.close();
  });

  test("a_process_ends_by_itself_after_its_locks", async () => {
    const env = { ...process.env, DAPR_GRPC_ENDPOINT: sidecar().address };
    const { stdout } = await run(process.execPath, [SCRIPT, "unlock", fresh()], { env, timeout: 30_000 });
    assert.equal(stdout, "unlocked\n");
  });

  test("an_unread_loss_does_not_fail_the_process", async () => {
    await using own = await Sidecar.start(backend);
    const env = { ...process.env, DAPR_GRPC_ENDPOINT: own.address };
    const name = fresh();
    const forced = run(process.execPath, [SCRIPT, "forget", name], { env, timeout: 30_000 });
    const disconnected = run(process.execPath, [SCRIPT, "forget", fresh()], { env, timeout: 30_000 });
    const held = new Promise((resolve) => disconnected.child.stdout?.once("data", resolve));
    forced.child.stdout?.once("data", () => void own.force(name));
    assert.deepEqual(await forced, { stdout: "held\n", stderr: "" }); // with exit code 0
    // The process itself must have received the lock, not only the store granted it.
    await Promise.race([held, disconnected]);
    await own.send("kill");
    assert.deepEqual(await disconnected, { stdout: "held\n", stderr: "" });
  });

  test("a_process_stays_alive_while_it_has_a_lock", async () => {
    const env = { ...process.env, DAPR_GRPC_ENDPOINT: sidecar().address };
    const name = fresh();
    const running = run(process.execPath, [SCRIPT, "hold", name], { env, timeout: 30_000 });
    running.child.stdout?.once("data", () => void sidecar().force(name));
    const { stdout } = await running;
    assert.equal(stdout, "held\nlost: forced\n");
  });
});
