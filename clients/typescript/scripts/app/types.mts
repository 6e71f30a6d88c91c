// Checked without skipLibCheck, so that the package's own types are complete.

import { type Lock, type LockOptions, Locks, type LossCause, LockLost } from "@leasehold/client";
import { requireToken } from "@leasehold/client/fence/sql";

export async function main(options: LockOptions): Promise<LossCause | undefined> {
  using locks = new Locks({ store: "lockstore" });
  await using lock: Lock | null = await locks.tryLock("order-1");
  const length: number = await locks.with("order-2", options, () => "text".length);
  try {
    lock?.check();
    await requireToken("sqlite", () => [length], {
      fenceKey: lock?.fenceKey ?? "",
      token: lock?.token ?? 0n,
    });
  } catch (error) {
    return error instanceof LockLost ? error.cause : undefined;
  }
  return undefined;
}
