// Where the checks run: the addresses and the lossy proxy, as `run` sets them.

import { randomUUID } from "node:crypto";
import { connect } from "node:net";
import { env } from "node:process";

function address(text) {
  const [host, port] = text.split(":");
  return { host, port: Number(port) };
}

export const stage = {
  direct: address(env.FRONT_ADDRESS),
  lossy: address(env.FRONT_LOSSY_ADDRESS),
  backend: env.FRONT_BACKEND,
  stressMs: 1000 * Number(env.FRONT_STRESS_SECONDS ?? "5"),
  isFront: env.FRONT_IS_REDIS !== "1",

  async lose(key, every = 1, limit = 1) {
    await command(`lose ${key} ${every} ${limit}`);
  },

  async lost(key) {
    return Number(await command(`lost ${key}`));
  },
};

function command(line) {
  return new Promise((resolve, reject) => {
    const connection = connect(address(env.FRONT_LOSSY_CONTROL), () => connection.write(`${line}\n`));
    let answer = "";
    connection.setEncoding("utf8");
    connection.on("error", reject);
    connection.on("data", (data) => {
      answer += data;
      if (!answer.endsWith("\n")) return;
      connection.end();
      if (answer.startsWith("error")) reject(new Error(answer));
      else resolve(answer.trim());
    });
  });
}

export const freshKey = (what) => `${what}-${randomUUID().slice(0, 12)}`;
