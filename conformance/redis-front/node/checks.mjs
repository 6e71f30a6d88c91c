// The checks of every lock library, on any store.

import { granted, grantedForShort, LONG, takenWhenFree } from "./locks.mjs";
import { eventually, expect } from "./report.mjs";
import { freshKey, stage } from "./stage.mjs";
import { stress } from "./stress.mjs";

const facts = {
  "a held lock is refused to another, and granted after its release": exclusion,
  "a lock ends at its TTL, and not before": expiry,
  "an owner whose lock was lost changes nothing of the next owner's": lateOwner,
  "an extension sets the TTL": extension,
  "a lock whose grant was not answered has one holder, and becomes free": lostGrant,
  "a lock whose extension was not answered is held until its release": lostExtension,
  "a lock whose release was not answered is free": lostRelease,
  "no two clients hold a lock at once, with replies lost in between": stress,
};

// A library has a name and `connect(address)`; `givesUp` means that it releases the lock itself if an
// extension fails.
export async function runChecks(report, library) {
  const subject = `${library.name} on ${stage.backend}`;
  for (const [sentence, body] of Object.entries(facts)) {
    await report.check(subject, sentence, () => body(library));
  }
}

async function exclusion({ connect }) {
  const [key, first, second] = [freshKey("exclusion"), connect(stage.direct), connect(stage.direct)];
  const held = await granted(first, key);
  expect("the other's try", await second.take(key, LONG), null);
  expect("the release", await held.release(), true);
  expect("the next release", await (await granted(second, key)).release(), true);
}

async function expiry({ connect }) {
  const [key, first, second] = [freshKey("expiry"), connect(stage.direct), connect(stage.direct)];
  const { earliest } = await grantedForShort(first, key);
  await takenWhenFree(second, key);
  if (performance.now() < earliest) {
    throw new Error("the lock was granted to another before its TTL was over");
  }
}

async function lateOwner({ connect }) {
  const [key, first, second] = [freshKey("late"), connect(stage.direct), connect(stage.direct)];
  const { held: late } = await grantedForShort(first, key);
  const current = await takenWhenFree(second, key);
  expect("the late owner's extension", await late.extend(LONG), false);
  expect("the late owner's release", await late.release(), false);
  expect("another try", await first.take(key, LONG), null);
  expect("the owner's release", await current.release(), true);
}

async function extension({ connect }) {
  const [key, client] = [freshKey("extension"), connect(stage.direct)];
  const held = await granted(client, key, 20_000);
  expect("the extension", await held.extend(LONG), true);
  const left = await client.pttl(key);
  if (left <= 30_000 || left > 62_000) {
    throw new Error(`PTTL returned ${left} ms after an extension to ${LONG} ms`);
  }
  expect("the release", await held.release(), true);
}

async function lostGrant({ connect }) {
  const [key, lossy, direct] = [freshKey("lost-grant"), connect(stage.lossy), connect(stage.direct)];
  await stage.lose(key);
  const held = await lossy.take(key, 3000).catch(() => null);
  expect("the number of lost replies", await stage.lost(key), 1);
  if (held) {
    expect("another's try", await direct.take(key, LONG), null);
    await held.release();
  }
  await takenWhenFree(direct, key);
}

async function lostExtension({ connect, givesUp }) {
  const key = freshKey("lost-extension");
  const [lossy, direct] = [connect(stage.lossy), connect(stage.direct)];
  const held = await granted(lossy, key);
  await stage.lose(key);
  const extended = await held.extend(LONG).catch(() => false);
  expect("the number of lost replies", await stage.lost(key), 1);
  if (givesUp && !extended) {
    await takenWhenFree(direct, key);
    return;
  }
  expect("another's try", await direct.take(key, LONG), null);
  // A library that reconnects in the background refuses commands meanwhile.
  await eventually("the release", () => held.release().catch(() => false));
  expect("the next release", await (await granted(direct, key)).release(), true);
}

async function lostRelease({ connect }) {
  const [key, lossy, direct] = [freshKey("lost-release"), connect(stage.lossy), connect(stage.direct)];
  const held = await granted(lossy, key);
  await stage.lose(key);
  await held.release().catch(() => false);
  expect("the number of lost replies", await stage.lost(key), 1);
  await takenWhenFree(direct, key);
}
