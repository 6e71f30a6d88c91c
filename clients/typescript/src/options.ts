import type { MessageInitShape } from "@bufbuild/protobuf";

import { type Duration, nanoseconds, toMessage } from "./duration.js";
import { LeaseholdError } from "./errors.js";
import { LockMode, type LockRequestSchema } from "./generated/leasehold/v1/locks_pb.js";

/** The options of every way to take a lock. */
export interface TryLockOptions {
  /** How long the lock lasts when nobody renews it. Default: the store's. */
  ttl?: Duration | undefined;
  /** Whether others may share the lock. Default: `exclusive`. */
  mode?: "exclusive" | "shared" | undefined;
  /** The segments of the namespace, the outermost first. Default: none. */
  namespace?: readonly string[] | undefined;
  /** The last part of the holder name, which others can see. Default: none. */
  label?: string | undefined;
  /** The lock is released after this long, whatever the app does. Default: never. */
  maxHold?: Duration | undefined;
  /** A secret. A repeated request with it finds its own grant again. Default: none. */
  requestId?: string | undefined;
  /**
   * How long before the safe deadline the work is cancelled; may be 0. Default: a tenth of the
   * granted TTL or of `maxHold`, whichever is shorter, at most 5 s.
   */
  stopBefore?: Duration | undefined;
  /**
   * The work of a scoped lock may take the same lock again, with this option too, and gets the
   * grant of the scope. Default: false.
   */
  reentrant?: boolean | undefined;
  /** Cancels the wait, with the signal's reason, and later the work, through `lock.signal`. */
  signal?: AbortSignal | undefined;
}

/** The options of the ways to take a lock that may wait for it. */
export interface LockOptions extends TryLockOptions {
  /** How long to wait for the lock. With 0 it does not wait. Default: no limit. */
  wait?: Duration | undefined;
}

/** A request whose options are checked. */
export interface Plan {
  store: string;
  name: string;
  namespace: readonly string[];
  mode: "exclusive" | "shared";
  /** Nanoseconds; undefined is no limit. */
  wait: bigint | undefined;
  stopBefore: bigint | undefined;
  maxHold: bigint | undefined;
  reentrant: boolean;
  signal: AbortSignal | undefined;
  message: MessageInitShape<typeof LockRequestSchema>;
}

const OPTIONS = [
  "ttl",
  "mode",
  "namespace",
  "label",
  "maxHold",
  "requestId",
  "stopBefore",
  "reentrant",
  "signal",
  "wait",
] as const satisfies (keyof LockOptions)[];

/** Refuses an unknown option, for callers without TypeScript. */
export function checkKeys(options: object, known: readonly string[]): void {
  const unknown = Object.keys(options).find((key) => !known.includes(key));
  if (unknown !== undefined) {
    throw new LeaseholdError("INVALID_REQUEST", `${unknown}: there is no such option`);
  }
}

/**
 * Checks what can be checked without the sidecar, types included, for callers without TypeScript.
 * An error names the option.
 */
export function plan(store: string, name: string, options: LockOptions, immediate: boolean): Plan {
  checkText("name", name);
  if (name === "") {
    throw new LeaseholdError("INVALID_REQUEST", "name: must not be empty");
  }
  checkKeys(options, OPTIONS);
  const { mode = "exclusive", namespace = [], label = "", requestId = "", signal } = options;
  checkText("label", label);
  checkText("requestId", requestId);
  if (!Array.isArray(namespace) || !namespace.every((segment) => typeof segment === "string")) {
    throw new LeaseholdError("INVALID_REQUEST", "namespace: must be an array of strings");
  }
  for (const segment of namespace) {
    checkText("namespace", segment);
  }
  if (!["exclusive", "shared"].includes(mode)) {
    throw new LeaseholdError("INVALID_REQUEST", "mode: must be exclusive or shared");
  }
  // Not `instanceof`, which fails for a signal of another realm, as test runners make them.
  if (signal !== undefined && typeof (signal as Partial<AbortSignal>).addEventListener !== "function") {
    throw new LeaseholdError("INVALID_REQUEST", "signal: must be an AbortSignal");
  }
  if (immediate && options.wait !== undefined) {
    throw new LeaseholdError("INVALID_REQUEST", "wait: a try does not wait");
  }
  const duration = (option: "ttl" | "maxHold" | "wait" | "stopBefore", allowed: "positive" | "zero") => {
    const value = options[option];
    return value === undefined ? undefined : nanoseconds(option, value, allowed);
  };
  const wait = duration("wait", "zero");
  const ttl = duration("ttl", "positive");
  const maxHold = duration("maxHold", "positive");
  const stopBefore = duration("stopBefore", "zero");
  if (stopBefore !== undefined && maxHold !== undefined && stopBefore >= maxHold) {
    throw new LeaseholdError("INVALID_REQUEST", "stopBefore is not shorter than maxHold");
  }
  return {
    store,
    name,
    namespace,
    mode,
    wait: immediate ? 0n : wait,
    stopBefore,
    maxHold,
    reentrant: options.reentrant ?? false,
    signal,
    message: {
      storeName: store,
      resourceId: name,
      namespace: [...namespace],
      mode: mode === "shared" ? LockMode.SHARED : LockMode.EXCLUSIVE,
      immediate,
      label,
      requestId,
      ...(wait === undefined ? {} : { wait: toMessage(wait) }),
      ...(ttl === undefined ? {} : { ttl: toMessage(ttl) }),
      ...(maxHold === undefined ? {} : { maxHold: toMessage(maxHold) }),
    },
  };
}

function checkText(name: string, value: unknown): void {
  if (typeof value !== "string") {
    throw new LeaseholdError("INVALID_REQUEST", `${name}: must be a string`);
  }
  if (/\p{Surrogate}/u.test(value)) {
    // It would be sent as another character, so that two names could share a lock.
    throw new LeaseholdError("INVALID_REQUEST", `${name}: must not have half of a surrogate pair`);
  }
}
