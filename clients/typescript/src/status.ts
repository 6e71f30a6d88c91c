// Reads the errors of failed calls.

import { getSystemErrorMap } from "node:util";

import { BinaryReader } from "@bufbuild/protobuf/wire";
import { Code, ConnectError } from "@connectrpc/connect";

import { describe } from "./duration.js";
import { LeaseholdError, NotAcquired } from "./errors.js";
import type { Plan } from "./options.js";

export interface Status {
  /** The reason of google.rpc.ErrorInfo, else the name of the gRPC code. */
  reason: string;
  message: string;
  metadata: Map<string, string>;
}

export function statusOf(error: unknown): Status {
  const failure = ConnectError.from(error);
  const status = {
    reason: codeName(failure.code),
    message: failure.rawMessage,
    metadata: new Map<string, string>(),
  };
  for (const detail of failure.details) {
    if ("type" in detail && detail.type === "google.rpc.ErrorInfo" && detail.value instanceof Uint8Array) {
      try {
        readErrorInfo(new BinaryReader(detail.value), status);
      } catch {
        // Not the sidecar's. The part that could be read counts.
      }
    }
  }
  return status;
}

/**
 * The error that a caller gets for a call that failed before there was a lock.
 *
 * @param unreachable - makes the message for a connection that could not be made.
 */
export function asError(
  error: unknown,
  { name, wait }: Plan,
  unreachable: (problem: string) => string,
): LeaseholdError {
  if (error instanceof LeaseholdError) {
    return error;
  }
  const { reason, message, metadata } = statusOf(error);
  if (reason === "RESOURCE_LOCKED" || reason === "WAIT_DEADLINE") {
    const holder = metadata.get("holder");
    const limit = wait === undefined ? "in time" : `within ${describe(wait)}`;
    const problem =
      reason === "WAIT_DEADLINE" ? `was not acquired ${limit}` : `is held by ${holder ?? "somebody else"}`;
    return new NotAcquired(reason, `the lock ${JSON.stringify(name)} ${problem}`, { cause: error, holder });
  }
  const problem = connectProblem(error);
  if (problem !== undefined) {
    return new LeaseholdError("UNAVAILABLE", unreachable(problem), { cause: error });
  }
  if (reason === "CANCELLED" || isBroken(error)) {
    // The caller's own cancellation is reported before. Node reports a broken connection as this.
    return new LeaseholdError("UNAVAILABLE", `the stream broke: ${message}`, { cause: error });
  }
  return new LeaseholdError(reason, message, { cause: error });
}

/** Whether the system reported the end of an established connection. */
function isBroken(error: unknown): boolean {
  const { cause } = error instanceof Error ? error : {};
  return cause instanceof Error && ["read", "write"].includes((cause as NodeJS.ErrnoException).syscall ?? "");
}

/** Why no connection could be made; undefined if something else has failed. */
function connectProblem(error: unknown): string | undefined {
  const seen = new Set<unknown>();
  for (let inner = error; inner instanceof Error && !seen.has(inner); inner = inner.cause) {
    seen.add(inner);
    // Node tries all addresses of a host, and then has an error for each.
    const first: unknown = inner instanceof AggregateError ? inner.errors[0] : inner;
    if (first instanceof Error) {
      const { syscall, errno } = first as NodeJS.ErrnoException;
      if (syscall === "connect" || syscall === "getaddrinfo") {
        return getSystemErrorMap().get(errno ?? 0)?.[1] ?? first.message;
      }
    }
  }
  return undefined;
}

function codeName(code: Code): string {
  // gRPC writes it with two l.
  return code === Code.Canceled ? "CANCELLED" : Code[code].replace(/(?<=[a-z])[A-Z]/g, "_$&").toUpperCase();
}

// The message has the fields reason = 1, domain = 2 and map<string, string> metadata = 3.
function readErrorInfo(reader: BinaryReader, status: Status): void {
  while (reader.pos < reader.len) {
    const [field, wireType] = reader.tag();
    if (field === 1) {
      status.reason = reader.string();
    } else if (field === 3) {
      const [key, value] = readEntry(new BinaryReader(reader.bytes()));
      status.metadata.set(key, value);
    } else {
      reader.skip(wireType);
    }
  }
}

function readEntry(reader: BinaryReader): [string, string] {
  const entry: [string, string] = ["", ""];
  while (reader.pos < reader.len) {
    const [field, wireType] = reader.tag();
    if (field === 1 || field === 2) {
      entry[field - 1] = reader.string();
    } else {
      reader.skip(wireType);
    }
  }
  return entry;
}
