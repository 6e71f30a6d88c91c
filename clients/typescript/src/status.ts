// What a failed call says.

import { BinaryReader } from "@bufbuild/protobuf/wire";
import { Code, ConnectError } from "@connectrpc/connect";

import { LeaseholdError, NotAcquired } from "./errors.js";

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
        // Not the sidecar's; what could be read of it counts.
      }
    }
  }
  return status;
}

/** The error that a caller gets for a call that failed before there was a lock. */
export function asError(error: unknown): LeaseholdError {
  if (error instanceof LeaseholdError) {
    return error;
  }
  const { reason, message, metadata } = statusOf(error);
  if (reason === "RESOURCE_LOCKED" || reason === "WAIT_DEADLINE") {
    return new NotAcquired(reason, message, { cause: error, holder: metadata.get("holder") });
  }
  if (reason === "CANCELLED") {
    // The caller's own cancellation is reported before. Node says this of a connection that broke.
    return new LeaseholdError("UNAVAILABLE", `the stream broke: ${message}`, { cause: error });
  }
  return new LeaseholdError(reason, message, { cause: error });
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
