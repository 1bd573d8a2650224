// What holds do when they are renewed, lost and left by a block.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { test } from "node:test";

import { Client, HoldLost } from "../src/index.js";
import { fresh, patience, startServer, until } from "./server.mjs";

const gh = new Client(process.env.GATEHOUSE_ADDRESS, { owner: "tests", timeout: patience });

// Timers of holds do not keep a program running, so something else must.
const event = (signal) => new Promise((resolve) => {
  const running = setTimeout(() => {}, patience);
  const stop = () => {
    clearTimeout(running);
    resolve();
  };
  signal.addEventListener("abort", stop, { once: true });
});

test("a hold is renewed", async () => {
  const name = fresh("lock");
  await gh.lock(name, { expires: 3000 }).run(async (hold) => {
    await until(async () => (await gh.holders("lock", name))[0].renewals >= 1);
    assert.equal(hold.lost, false);
  });
});

test("a loss is told by signal, check, run and release", async () => {
  const name = fresh("lock");
  const failed = gh.lock(name, { expires: 3000 }).run(async (hold) => {
    await gh.delete("lock", name);
    await event(hold.signal);
    assert.ok(hold.signal.reason instanceof HoldLost);
    assert.throws(() => hold.check(), HoldLost);
  });
  await assert.rejects(failed, HoldLost);
});

test("a loss is known before the next one holds", async () => {
  const server = await startServer();
  try {
    const other = new Client(server.address);
    let hangs = false; // a road that is cut: what is sent comes to nothing
    const cut = (input, init) =>
      hangs ? new Promise((_, reject) => init.signal.addEventListener("abort", () => reject(init.signal.reason)))
        : fetch(input, init);
    const mine = new Client(server.address, { fetch: cut });
    const hold = await mine.lock("a", { expires: 2000 }).acquire();
    hangs = true;
    const next = await other.lock("a").acquire();
    assert.ok(hold.lost);
    if (!hold.signal.aborted) await event(hold.signal); // its timer may be late, and the clock is not
    assert.ok(next.fence > hold.fence);
    await assert.rejects(hold.release(), HoldLost);
    await next.release();
  } finally {
    await server.stop();
  }
});

test("await using, or what it calls", async () => {
  const name = fresh("lock");
  const hold = await gh.lock(name).acquire();
  if (Symbol.asyncDispose) await hold[Symbol.asyncDispose]();
  else await hold.release();
  assert.deepEqual(await gh.holders("lock", name), []);
});

// GATEHOUSE_TRANSPILER is a command that turns standard input into what this Node runs.
test("await using, transpiled", { skip: !process.env.GATEHOUSE_TRANSPILER }, async () => {
  const folder = mkdtempSync(fileURLToPath(new URL("./using-", import.meta.url)));
  try {
    const [command, ...args] = process.env.GATEHOUSE_TRANSPILER.split(" ");
    const source = readFileSync(new URL("./using.source.js", import.meta.url));
    writeFileSync(`${folder}/using.mjs`, execFileSync(command, args, { input: source }));
    const { useBlock } = await import(`${folder}/using.mjs`);
    const name = fresh("lock");
    assert.equal(await useBlock(gh.lock(name), () => gh.holders("lock", name)), 1);
    assert.deepEqual(await gh.holders("lock", name), []);
    await assert.rejects(useBlock(gh.lock(name, { expires: 3000 }), async (hold) => {
      await gh.delete("lock", name);
      await event(hold.signal);
      return [];
    }), HoldLost);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
