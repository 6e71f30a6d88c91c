// Runs a command with a sidecar, whose address is in the command's environment.

import { spawn } from "node:child_process";
import { once } from "node:events";

import { Sidecar } from "../test/sidecar.js";

const [, , command = "", ...rest] = process.argv;
await using sidecar = await Sidecar.start("memory");
const child = spawn(command, rest, {
  stdio: "inherit",
  env: { ...process.env, DAPR_GRPC_PORT: String(sidecar.ports.grpcPort) },
});
const [code] = (await once(child, "exit")) as [number | null];
process.exitCode = code ?? 1;
