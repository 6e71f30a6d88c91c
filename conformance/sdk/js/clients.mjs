// The SDK's two protocols behind one shape, so that both run the same checks.

import { Code, ConnectError } from "@connectrpc/connect";
import { CommunicationProtocolEnum, DaprClient } from "@dapr/dapr";

// The error of a failed call: `code` is gRPC's name, or HTTP's errorCode.
export class Refused extends Error {
  constructor(code, text) {
    super(`${code}: ${text}`);
    this.code = code;
    this.text = text;
  }
}

const quiet = { level: "error" };

function connect(protocol, token) {
  const options = { communicationProtocol: protocol, logger: quiet };
  if (token !== undefined) {
    options.daprApiToken = token;
  }
  const client = new DaprClient(options);
  if (token !== undefined) {
    // The SDK asks for the metadata before its first call, and with a token
    // that is refused would ask for a minute and never make that call.
    client.daprClient.setIsInitialized(true);
  }
  return client;
}

function asRefused(error) {
  if (error instanceof ConnectError) {
    return new Refused(Code[error.code], error.rawMessage);
  }
  try {
    const { error_msg: body, status } = JSON.parse(error.message);
    if (status === 401) {
      return new Refused("Unauthenticated", body);
    }
    const { errorCode, message } = JSON.parse(body);
    return new Refused(errorCode, message);
  } catch {
    return error;
  }
}

class Client {
  constructor(protocol, token) {
    this.client = connect(protocol, token);
  }

  async tryLock(store, resource, owner, expirySeconds) {
    try {
      return (await this.client.lock.lock(store, resource, owner, expirySeconds)).success;
    } catch (error) {
      throw asRefused(error);
    }
  }

  async unlock(store, resource, owner) {
    try {
      return (await this.client.lock.unlock(store, resource, owner)).status;
    } catch (error) {
      throw asRefused(error);
    }
  }

  async close() {
    await this.client.stop();
  }
}

export class HttpClient extends Client {
  static subject = "js http";
  static codes = {
    malformed: "ERR_MALFORMED_REQUEST",
    noStore: "ERR_LOCK_STORE_NOT_FOUND",
    tryFailed: "ERR_TRY_LOCK",
    unlockFailed: "ERR_UNLOCK",
  };

  constructor(token) {
    super(CommunicationProtocolEnum.HTTP, token);
  }
}

export class GrpcClient extends Client {
  static subject = "js grpc";
  static codes = {
    malformed: "InvalidArgument",
    noStore: "InvalidArgument",
    tryFailed: "Internal",
    unlockFailed: "Internal",
  };

  constructor(token) {
    super(CommunicationProtocolEnum.GRPC, token);
  }
}
