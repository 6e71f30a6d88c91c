// Several clients contend for a few locks, half of them over the lossy proxy.

import { setTimeout as sleep } from "node:timers/promises";
import { SHORT, takenWhenFree } from "./locks.mjs";
import { eventually, expect } from "./report.mjs";
import { freshKey, stage } from "./stage.mjs";

const CLIENTS = 8;
const KEYS = 3;
// One of this many replies is lost.
const LOSSES_APART = 20;
// How often each lock is released at least.
const RELEASES = 10;

// What a lock protects. It has the time until which its holder is sure of the lock.
class Section {
  overlaps = 0;
  releases = 0;
  #sureUntil = 0;

  constructor(key) {
    this.key = key;
  }

  // Whether the client came in time.
  enter(sureUntil) {
    const now = performance.now();
    // The client was delayed: by now another may hold the lock.
    if (now >= sureUntil) return false;
    if (now < this.#sureUntil) this.overlaps += 1;
    this.#sureUntil = sureUntil;
    return true;
  }

  leave(sureUntil) {
    if (this.#sureUntil === sureUntil) this.#sureUntil = 0;
  }
}

export async function stress({ connect, givesUp }) {
  const sections = Array.from({ length: KEYS }, () => new Section(freshKey("stress")));
  for (const { key } of sections) await stage.lose(key, LOSSES_APART, 1_000_000);
  const clients = Array.from({ length: CLIENTS }, (_, number) =>
    connect(number % 2 ? stage.lossy : stage.direct),
  );
  // A slow store gets as many rounds as it needs.
  await eventually("enough releases, and a lost reply", async () => {
    const ends = performance.now() + stage.stressMs;
    // A library that releases a lock whose extension failed no longer holds it here.
    await Promise.all(clients.map((client) => contend(client, sections, ends, !givesUp)));
    let lost = 0;
    for (const { key, overlaps } of sections) {
      expect(`the number of overlaps on ${key}`, overlaps, 0);
      lost += await stage.lost(key);
    }
    return lost > 0 && sections.every(({ releases }) => releases >= RELEASES);
  });
  for (const { key } of sections) await takenWhenFree(clients[0], key);
}

async function contend(client, sections, ends, extending) {
  while (performance.now() < ends) {
    const section = sections[Math.floor(Math.random() * sections.length)];
    const sureUntil = performance.now() + SHORT;
    const held = await client.take(section.key, SHORT).catch(() => null);
    if (!held) {
      // Clients that poll pause between their tries.
      await sleep(10 * Math.random());
      continue;
    }
    const inTime = section.enter(sureUntil);
    if (extending && Math.random() < 0.1) await held.extend(SHORT).catch(() => false);
    // The lock is held for a while, so that an overlap shows.
    await sleep(2 * Math.random());
    section.leave(sureUntil);
    if ((await held.release().catch(() => false)) && inTime) section.releases += 1;
  }
}
