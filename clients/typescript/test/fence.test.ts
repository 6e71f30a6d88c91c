import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, test } from "node:test";

import { PGlite } from "@electric-sql/pglite";
import initSqlJs from "sql.js";

import { CREATE_TABLE, GUARD, type Query, requireToken, StaleToken } from "../src/fence/sql.js";
import { createRouterTransport } from "@connectrpc/connect";

import { Locks as Service } from "../src/generated/leasehold/v1/locks_pb.js";
import { Locks } from "../src/index.js";
import { failure, fresh, onEachBackend } from "./helpers.js";

/** A database with one order, and its last payer. */
interface Database {
  dialect: keyof typeof GUARD;
  query: Query;
  run: (statement: string) => Promise<unknown>;
}

const pglite = await PGlite.create();
after(() => pglite.close());

async function postgresql(): Promise<Database> {
  await pglite.exec("DROP TABLE IF EXISTS leasehold_fence; DROP TABLE IF EXISTS orders");
  return {
    dialect: "postgresql",
    query: async (text, parameters) => (await pglite.query(text, parameters)).rows,
    run: async (statement) => (await pglite.query<{ payer: string }>(statement)).rows[0]?.payer,
  };
}

async function sqlite(): Promise<Database> {
  const { Database: Open } = await initSqlJs();
  const database = new Open();
  const query = (text: string, parameters: string[] = []) => database.exec(text, parameters)[0]?.values ?? [];
  return {
    dialect: "sqlite",
    query,
    run: (statement) => Promise.resolve(query(statement)[0]?.[0]),
  };
}

onEachBackend((_, sidecar) => {
  for (const open of [postgresql, sqlite]) {
    test(`a_stale_token_is_refused_by_${open.name}`, async () => {
      const { dialect, query, run } = await open();
      await run(CREATE_TABLE);
      await run(CREATE_TABLE);
      await run("CREATE TABLE orders (payer TEXT)");
      await run("INSERT INTO orders VALUES ('nobody')");
      const pay = async (payer: string, lock?: { fenceKey: string; token: bigint }) => {
        await run("BEGIN");
        try {
          if (lock !== undefined) {
            await requireToken(dialect, query, lock);
          }
          await run(`UPDATE orders SET payer = '${payer}'`);
          await run("COMMIT");
        } catch (error) {
          await run("ROLLBACK");
          throw error;
        }
      };
      const locks = sidecar().locks();
      const name = fresh();
      const take = () => locks.with(name, (lock) => lock);
      const first = await take();
      await pay("first", first);
      await pay("first again", first);
      const [stale, later] = [await take(), await take()];
      await pay("later", later);
      const refused = await failure(pay("stale", stale));
      assert(refused instanceof StaleToken, String(refused));
      assert.equal(refused.reason, "STALE_TOKEN");
      assert.equal(await run("SELECT payer FROM orders"), "later");
      await pay("later again", later);
      // Nothing else has the fence of another lock.
      await pay("other", await locks.with(fresh(), (lock) => lock));
      // Without the fence the stale writer wins.
      await pay("stale");
      assert.equal(await run("SELECT payer FROM orders"), "stale");
      // Tokens of 63 bits are compared as integers.
      const [least, most] = [2n ** 62n + 1n, 2n ** 62n + 2n].map((token) => ({ fenceKey: name, token }));
      assert(least !== undefined && most !== undefined);
      await pay("most", most);
      assert((await failure(pay("least", least))) instanceof StaleToken);
    });
  }
});

test("the README has the statements of the fence", () => {
  const readme = readFileSync(new URL("../../README.md", import.meta.url), "utf8");
  assert(readme.includes(GUARD.postgresql.replace("\nRETURNING token", ";")));
});

test("different locks have different keys", async () => {
  const transport = createRouterTransport(({ service }) => {
    service(Service, {
      async *lockStream() {
        yield { lockServerStream: { case: "lockAcquired", value: { ttl: { seconds: 9n } } } };
        await new Promise((resolve) => setTimeout(resolve, 10));
      },
      unlock: () => ({}),
    });
  });
  const key = (store: string, name: string, ...namespace: string[]) =>
    new Locks({ store, transport }).with(name, { namespace }, (lock) => lock.fenceKey);
  assert.equal(await key("s", "order-1"), "s||order-1");
  assert.equal(await key("s", "o%1", "shop", "e/u"), "s||shop/e%2Fu//o%251");
  assert.equal(await key("s|", "a"), "s%7C||a");
});
