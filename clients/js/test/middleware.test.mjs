// What stands before handlers, and before calls of a third party that is a real server here.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { once } from "node:events";
import { test } from "node:test";

import { Client, expressLimit, fetchLimit, limitedFetch, readFeedback } from "../src/index.js";
import { fresh, patience } from "./server.mjs";

const unused = "127.0.0.1:5599"; // where nobody listens

const gh = new Client(process.env.GATEHOUSE_ADDRESS, { timeout: 60_000 });
const nobody = new Client(unused);

async function serve(handler, use) {
  const server = createServer(handler).listen(0, "127.0.0.1");
  await once(server, "listening");
  try {
    return await use(`http://127.0.0.1:${server.address().port}/`);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

test("express", async () => {
  const name = fresh("api");
  const limit = expressLimit(gh, { budget: patience, limits: "2/1h", name: (request) => `${name}${request.url}` });
  const handler = (request, response) => limit(request, response, () => response.end("hello"));
  await serve(handler, async (address) => {
    const first = await fetch(address);
    assert.equal(await first.text(), "hello");
    assert.match(first.headers.get("RateLimit"), /r=1/);
    await (await fetch(address)).text();
    const third = await fetch(address);
    assert.equal(third.status, 429);
    assert.equal(third.headers.get("Content-Type"), "application/problem+json");
    assert.ok(Number(third.headers.get("Retry-After")) > 1000);
    assert.equal((await third.json()).code, "refused");
    assert.equal((await fetch(`${address}other`)).status, 200);
  });
});

test("fetch handlers, failing open and closed", async () => {
  const request = new Request("http://example/");
  const hello = () => new Response("hello");
  const limited = fetchLimit(gh, { budget: patience, limits: "1/1h", name: () => fresh("api") })(hello);
  assert.match((await limited(request)).headers.get("RateLimit"), /r=0/);
  const errors = [];
  const onError = (error) => errors.push(error.code);
  const open = fetchLimit(nobody, { limits: "1/1h", name: () => "a", onError })(hello);
  assert.equal((await open(request)).status, 200);
  const closed = fetchLimit(nobody, { limits: "1/1h", name: () => "a", failOpen: false, onError })(hello);
  assert.equal((await closed(request)).status, 503);
  assert.deepEqual(errors, ["unavailable", "unavailable"]);
});

test("one 429 pauses everybody", async () => {
  const limiter = gh.limiter(fresh("partner"), { size: 600, interval: 60_000 }, { kind: "slidinglog" });
  let calls = 0;
  const party = (request, response) => {
    calls++;
    response.writeHead(429, { "Retry-After": "30" }).end();
  };
  await serve(party, async (address) => {
    const call = limitedFetch(limiter, { maxWait: 0 });
    assert.equal((await call(address)).status, 429);
    await assert.rejects(call(address), { code: "refused" });
    assert.equal(calls, 1);
  });
});

test("feedback in all generations of headers", () => {
  const wall = Date.parse("2026-01-01T00:00:00Z");
  const read = (status, headers) => readFeedback(status, (name) => headers[name] ?? null, wall);
  assert.deepEqual(read(429, { "retry-after": "30" }), { status: 429, retryAfter: 30_000 });
  assert.deepEqual(read(429, { "retry-after-ms": "250" }), { status: 429, retryAfter: 250 });
  assert.equal(read(503, { "retry-after": "Thu, 01 Jan 2026 00:00:10 GMT" }).retryAfter, 10_000);
  const seven = { remaining: 7, reset: 10_000, status: 200 };
  assert.deepEqual(read(200, { ratelimit: '"day";r=70;t=99, "burst";r=7;t=10' }), seven);
  assert.deepEqual(read(200, { ratelimit: "limit=100, remaining=7, reset=10" }), seven);
  assert.deepEqual(read(200, { "ratelimit-remaining": "7", "ratelimit-reset": "10" }), seven);
  assert.deepEqual(read(200, { "x-ratelimit-remaining": "7", "x-ratelimit-reset": String(wall / 1000 + 10) }), seven);
  assert.deepEqual(read(200, { "x-ratelimit-remaining-requests": "7", "x-ratelimit-reset-requests": "10s" }), seven);
  assert.equal(read(200, { "x-ratelimit-remaining-requests": "7", "x-ratelimit-reset-requests": "6m0s" }).reset, 360_000);
  const model = { "anthropic-ratelimit-requests-remaining": "7", "anthropic-ratelimit-requests-reset": "2026-01-01T00:00:10Z" };
  assert.deepEqual(read(200, model), seven);
  assert.equal(read(429, { ratelimit: '"a";r=0;t=5' }).retryAfter, 5000);
});
