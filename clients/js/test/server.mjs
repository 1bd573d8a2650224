// A real server of one test's own, which can be paused and killed.

import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";

export const patience = 60_000;
export const fresh = (name) => `${name}-${randomUUID()}`;

export async function startServer(...flags) {
  const args = ["serve", "--http", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--grpc", "127.0.0.1:0", ...flags];
  const process_ = spawn(process.env.GATEHOUSE_BINARY, args, { stdio: ["ignore", "ignore", "pipe"] });
  const ended = new Promise((resolve) => process_.once("exit", resolve));
  const address = await new Promise((resolve, reject) => {
    let text = "";
    process_.stderr.on("data", (data) => {
      text += data;
      const found = /serving HTTP.*?"?address"?[=:]"?([^\s",]+)/.exec(text);
      if (found) resolve(`http://${found[1]}`);
    });
    process_.once("exit", () => reject(new Error(`the server does not serve: ${text}`)));
  });
  return {
    address,
    pause: () => process_.kill("SIGSTOP"),
    goOn: () => process_.kill("SIGCONT"),
    stop: async () => {
      process_.kill("SIGCONT");
      process_.kill("SIGTERM");
      await ended;
    },
  };
}

/** Look again and again until something is so. Each look is a request, so nothing spins. */
export async function until(look) {
  const began = performance.now();
  while (!(await look())) {
    if (performance.now() - began > patience) throw new Error("it did not come to pass");
  }
}
