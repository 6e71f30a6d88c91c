// How the sidecar is reached.

import { connect as connectSocket } from "node:net";

import {
  type CallOptions,
  type Client,
  Code,
  ConnectError,
  createClient,
  type Transport as ConnectTransport,
} from "@connectrpc/connect";
import { createGrpcTransport, Http2SessionManager } from "@connectrpc/connect-node";

import { LeaseholdError } from "./errors.js";
import { Locks as Service } from "./generated/leasehold/v1/locks_pb.js";
import type { Transport } from "./transport.js";

/** The service's calls, and the headers of every call. */
export interface Rpc {
  calls: Client<typeof Service>;
  options: CallOptions;
}

/** Where the sidecar is. */
export interface Endpoint {
  /** The URL for the transport. */
  url: string;
  /** The path of a Unix socket. */
  socket?: string;
}

/** Pings a connection while a call is open on it, and closes one that does not answer. */
const PINGS = { pingIntervalMs: 10_000, pingTimeoutMs: 5_000 };

/** A failure is reported to the streams of the connection. */
const ignore = (): void => undefined;

class Sessions extends Http2SessionManager {
  override async request(...call: Parameters<Http2SessionManager["request"]>) {
    const stream = await super.request(...call);
    const { session } = stream;
    // Connect removes its own listener in `abort`. The event of a ping that has failed may come
    // after that, and without a listener it would end the process.
    if (session?.listenerCount("error", ignore) === 0) {
      session.on("error", ignore);
    }
    let isAnswered = false;
    stream.once("response", () => {
      isAnswered = true;
    });
    stream.once("close", () => {
      // Connect does not notice a stream that ends without an error before its response.
      if (!isAnswered) {
        const problem = "the stream ended before its response";
        stream.emit("error", new ConnectError(problem, Code.Canceled));
      }
    });
    return stream;
  }
}

interface Channel {
  rpc: Rpc;
  /** None for a transport of the caller's, which stays open. */
  sessions: Http2SessionManager | undefined;
  /** What closes each open stream. */
  streams: Set<AbortController>;
}

/** A connection to the sidecar: the client's own, or a transport of the caller's. */
export class Connection {
  readonly #options: CallOptions;
  readonly #transport: Transport | undefined;
  readonly #endpoint: Endpoint | undefined;
  /** Channels without new calls, until their last stream ends. */
  readonly #replaced = new Set<Channel>();
  /** Advice for the error of an unreachable sidecar. */
  readonly #advice: string;
  #channel: Channel | undefined;
  #isClosed = false;

  constructor(settings: {
    address?: string | undefined;
    apiToken?: string | undefined;
    transport?: Transport | undefined;
  }) {
    const { DAPR_API_TOKEN } = process.env;
    const token = settings.apiToken ?? DAPR_API_TOKEN ?? "";
    // 0 is no deadline, also if the transport has a default one.
    this.#options = { timeoutMs: 0, headers: token === "" ? {} : { "dapr-api-token": token } };
    this.#transport = settings.transport;
    this.#endpoint = settings.transport === undefined ? endpoint(settings.address) : undefined;
    if (settings.transport !== undefined) {
      this.#advice = "check the address of the transport";
    } else if (settings.address !== undefined) {
      this.#advice = "give another address";
    } else {
      this.#advice = "set DAPR_GRPC_ENDPOINT or DAPR_GRPC_PORT";
    }
  }

  /** The channel that new calls use. */
  get rpc(): Rpc {
    return this.#current().rpc;
  }

  #current(): Channel {
    this.throwIfClosed();
    this.#channel ??= this.#open();
    return this.#channel;
  }

  throwIfClosed(): void {
    if (this.#isClosed) {
      throw new LeaseholdError("CANCELLED", "the client is closed");
    }
  }

  /** What closes a new stream of `rpc`, and must be used at its end. `close` does so too. */
  closer(): AbortController {
    const channel = this.#current();
    const closer = new AbortController();
    channel.streams.add(closer);
    const ended = () => {
      channel.streams.delete(closer);
      this.#endIfUnused(channel);
    };
    closer.signal.addEventListener("abort", ended, { once: true });
    return closer;
  }

  #endIfUnused(channel: Channel): void {
    if (channel.streams.size === 0 && this.#replaced.delete(channel)) {
      channel.sessions?.abort();
    }
  }

  /**
   * Replaces a channel that does not answer: new calls use another connection. Calls that are
   * open on the old one stay there. The caller's transport is kept.
   */
  replace(stuck: Rpc): void {
    const channel = this.#channel;
    if (channel?.rpc !== stuck || channel.sessions === undefined) {
      return;
    }
    this.#channel = undefined;
    this.#replaced.add(channel);
    this.#endIfUnused(channel);
  }

  /** The message for a connection that could not be made. */
  unreachable(problem: string): string {
    let where = "";
    if (this.#endpoint !== undefined) {
      const { url, socket } = this.#endpoint;
      where = ` at ${socket === undefined ? url.replace(/^http:\/\//, "") : `unix:${socket}`}`;
    }
    return `no sidecar${where}: ${problem}; start "leasehold sidecar", or ${this.#advice}`;
  }

  /** Closes all streams, and the client's own connections. There are no new calls. */
  close(): void {
    this.#isClosed = true;
    const channels = [...this.#replaced];
    if (this.#channel !== undefined) {
      channels.push(this.#channel);
    }
    this.#channel = undefined;
    for (const { streams, sessions } of channels) {
      for (const closer of streams) {
        closer.abort();
      }
      sessions?.abort();
    }
    this.#replaced.clear();
  }

  #open(): Channel {
    if (this.#endpoint === undefined) {
      const transport = this.#transport;
      if (transport === undefined) {
        throw new LeaseholdError("UNAVAILABLE", "there is neither an address nor a transport");
      }
      return {
        rpc: { calls: createClient(Service, transport as ConnectTransport), options: this.#options },
        sessions: undefined,
        streams: new Set(),
      };
    }
    const { url, socket } = this.#endpoint;
    const sessions = new Sessions(
      url,
      PINGS,
      socket === undefined ? {} : { createConnection: () => connectSocket(socket) },
    );
    const transport = createGrpcTransport({ baseUrl: url, sessionManager: sessions });
    const rpc = { calls: createClient(Service, transport), options: this.#options };
    return { rpc, sessions, streams: new Set() };
  }
}

/** Where the sidecar is: at the given address, else at that of the environment. */
export function endpoint(address: string | undefined): Endpoint {
  const { DAPR_GRPC_ENDPOINT, DAPR_GRPC_PORT } = process.env;
  if (address !== undefined) {
    return parse("address", address);
  }
  if (DAPR_GRPC_ENDPOINT) {
    return parse("DAPR_GRPC_ENDPOINT", DAPR_GRPC_ENDPOINT);
  }
  if (DAPR_GRPC_PORT) {
    return parse("DAPR_GRPC_PORT", `127.0.0.1:${DAPR_GRPC_PORT}`);
  }
  return { url: "http://127.0.0.1:50001" };
}

function parse(name: string, address: string): Endpoint {
  const socket = /^unix:(?:\/\/)?(.+)$/.exec(address)?.[1];
  if (socket !== undefined) {
    return { url: "http://localhost", socket };
  }
  const hasScheme = /^https?:\/\//.test(address);
  const isBare = !hasScheme && /^[^/?#@]+:\d+$/.test(address);
  if ((hasScheme || isBare) && URL.canParse(hasScheme ? address : `http://${address}`)) {
    const url = new URL(hasScheme ? address : `http://${address}`);
    if (url.username === "" && url.pathname === "/" && url.search === "" && url.hash === "") {
      return { url: url.origin };
    }
  }
  throw new LeaseholdError(
    "INVALID_REQUEST",
    `${name}: ${JSON.stringify(address)} is none of host:port, http://…, https://… and unix:…`,
  );
}
