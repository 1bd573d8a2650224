// Every block of the README is executed, in the order of reading and as one module.

import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { test } from "node:test";

import { Client } from "../src/index.js";

test("README", async () => {
  await new Client(process.env.GATEHOUSE_ADDRESS, { timeout: 60_000 }).delete("event", "migrated-7"); // of another run
  const text = readFileSync(new URL("../README.md", import.meta.url), "utf8");
  const blocks = [...text.matchAll(/^```js\n(.*?)^```$/gms)].map(([, block]) => block);
  const source = blocks.join("\n")
    .replaceAll("http://localhost:5505", process.env.GATEHOUSE_ADDRESS)
    .replace('owner: "train-a"', 'owner: "train-a", timeout: 60_000'); // on a busy machine
  const folder = mkdtempSync(fileURLToPath(new URL("./readme-", import.meta.url)));
  try {
    writeFileSync(`${folder}/blocks.mjs`, source); // "gatehouse-client" is this package, by its own name
    execFileSync(process.execPath, [`${folder}/blocks.mjs`], { timeout: 60_000 });
  } finally {
    rmSync(folder, { recursive: true });
  }
});
