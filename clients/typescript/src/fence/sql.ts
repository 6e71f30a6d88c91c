/**
 * A fence in an SQL database: a row for each lock that keeps the greatest token seen, and refuses
 * a smaller one within the transaction that writes. It needs no driver of its own.
 *
 * Fences are for exclusive locks. All writers of the guarded data must use the fence.
 *
 * @packageDocumentation
 */
import { LeaseholdError } from "../errors.js";

/** Makes the table of the fences, unless it exists. */
export const CREATE_TABLE =
  "CREATE TABLE IF NOT EXISTS leasehold_fence (resource TEXT PRIMARY KEY, token BIGINT NOT NULL)";

// One row if the token was stored, none if it is stale.
const guard = (resource: string, token: string) => `\
INSERT INTO leasehold_fence (resource, token) VALUES (${resource}, ${token})
ON CONFLICT (resource) DO UPDATE SET token = excluded.token
WHERE leasehold_fence.token <= excluded.token
RETURNING token`;

/**
 * The statement of the fence: PostgreSQL 9.5 and later, SQLite 3.35 and later. Its parameters are
 * the key and the token.
 */
export const GUARD = { postgresql: guard("$1", "$2"), sqlite: guard("?", "?") };

/** Runs a statement in the transaction that writes, and returns its rows. */
export type Query = (
  text: string,
  parameters: [key: string, token: string],
) => PromiseLike<readonly unknown[]> | readonly unknown[];

/** The token is smaller than one that the fence has seen: somebody else has had the lock since. */
export class StaleToken extends LeaseholdError {
  override readonly name = "StaleToken";

  /** @internal */
  constructor(key: string, token: bigint) {
    super("STALE_TOKEN", `the token ${token} of ${key} is stale`);
  }
}

/**
 * Stores the token of a lock, or refuses it. Belongs at the beginning of the transaction that
 * writes, which must be rolled back if this throws. An equal token is the same holder's next write.
 *
 * ```ts
 * await client.query("BEGIN");
 * await requireToken("postgresql", async (text, values) => (await client.query(text, values)).rows, lock);
 * ```
 *
 * @param lock a handle, or what was handed on from one.
 * @throws {StaleToken} (reason `STALE_TOKEN`) if a later holder has written. Errors of the database
 *   are passed on; PostgreSQL may refuse a stale token by a serialization failure instead, in an
 *   isolation above READ COMMITTED.
 */
export async function requireToken(
  dialect: keyof typeof GUARD,
  query: Query,
  lock: { fenceKey: string; token: bigint },
): Promise<void> {
  const rows = await query(GUARD[dialect], [lock.fenceKey, lock.token.toString()]);
  if (rows.length === 0) {
    throw new StaleToken(lock.fenceKey, lock.token);
  }
}
