// Checks all but locks with Dapr's JS SDK, through a sidecar that serves the
// locks itself. The checks are those of ../README.md.

import { randomUUID } from "node:crypto";

import { GrpcClient, HttpClient } from "./clients.mjs";
import { expect, Report } from "./report.mjs";

const LOCK_STORE = process.env.LOCK_STORE ?? "locks";
const STATE_STORES = process.env.STATE_STORES.split(",");
const { SECRET_STORE, SECRET_KEY, SECRET_VALUE, PUBSUB, DAPR_APP_ID } = process.env;

const fresh = (name) => `${name}-${randomUUID()}`;

async function checkLock(report, client) {
  await report.check("a lock is granted, refused and released beside it", async () => {
    const resource = fresh("passthrough");
    expect("success", await client.tryLock(LOCK_STORE, resource, "a", 30), true);
    expect("success", await client.tryLock(LOCK_STORE, resource, "b", 30), false);
    expect("status", await client.unlock(LOCK_STORE, resource, "a"), 0);
  });
}

async function checkState(report, dapr, store) {
  await report.check(`state is saved, read and deleted in ${store}`, async () => {
    const key = fresh("key");
    expect("error", (await dapr.state.save(store, [{ key, value: { name: "ключ" } }])).error, undefined);
    expect("value", (await dapr.state.get(store, key)).name, "ключ");
    expect("error", (await dapr.state.delete(store, key)).error, undefined);
    expect("value", await dapr.state.get(store, key), "");
  });
}

async function checkSurroundings(report, dapr) {
  await report.check("an event is published", async () => {
    expect("error", (await dapr.pubsub.publish(PUBSUB, fresh("topic"), { order: 1 })).error, undefined);
  });
  report.ignore("a published event reaches a streaming subscription", "the JS SDK has no streaming subscriptions");
  await report.check("a secret is read", async () => {
    expect("secret", (await dapr.secret.get(SECRET_STORE, SECRET_KEY))[SECRET_KEY], SECRET_VALUE);
  });
  await report.check("the metadata names daprd's components", async () => {
    const { id, components } = await dapr.metadata.get();
    expect("app ID", id, DAPR_APP_ID);
    for (const name of [...STATE_STORES, SECRET_STORE, PUBSUB]) {
      expect(`${name} is among the components`, components.some((component) => component.name === name), true);
    }
  });
  await report.check("the SDK's health check passes", async () => {
    expect("healthy", await dapr.health.isHealthy(), true);
  });
}

let code = 0;
for (const Client of [HttpClient, GrpcClient]) {
  const report = new Report(Client.subject);
  const client = new Client();
  await checkLock(report, client);
  for (const store of STATE_STORES) {
    await checkState(report, client.client, store);
  }
  await checkSurroundings(report, client.client);
  await client.close();
  code |= report.close();
}
process.exit(code);
