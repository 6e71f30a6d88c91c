// An application that has installed the package and Dapr's SDK, and nothing else.

import { CommunicationProtocolEnum, DaprClient } from "@dapr/dapr";
import { Locks } from "@leasehold/client";

const dapr = new DaprClient({
  communicationProtocol: CommunicationProtocolEnum.GRPC,
  ...(process.env.DAPR_GRPC_PORT === undefined ? {} : { daprPort: process.env.DAPR_GRPC_PORT }),
});
const locks = new Locks({ store: "lockstore" });
await locks.with("order-1", { wait: "10s" }, async (lock) => {
  await using other = await locks.tryLock("order-1");
  const { success } = await dapr.lock.lock("lockstore", "order-1", "me", 5);
  if (other !== null || success) {
    throw new Error("it was granted twice");
  }
  console.log(`token ${lock.token}`);
});
await dapr.stop();
