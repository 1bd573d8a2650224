// What holds and the rest do when all is well, and when a server says no.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Client, Refused, Unavailable } from "../src/index.js";
import { fresh, patience, until } from "./server.mjs";

const unused = "127.0.0.1:5599"; // where nobody listens

const gh = new Client(process.env.GATEHOUSE_ADDRESS, { owner: "tests", timeout: patience });

test("a hold is released at the end", async () => {
  const name = fresh("gpu");
  const result = await gh.semaphore(name, 2).run(async (hold) => {
    assert.ok(hold.fence > 0);
    assert.ok(hold.remaining > 50_000);
    hold.check();
    const [holder] = await gh.holders("semaphore", name);
    assert.equal(holder.owner, "tests");
    return 7;
  });
  assert.equal(result, 7);
  assert.deepEqual(await gh.holders("semaphore", name), []);
});

test("refused", async () => {
  const name = fresh("lock");
  const hold = await gh.lock(name).acquire();
  assert.equal(await gh.lock(name).tryAcquire(), null);
  await assert.rejects(gh.lock(name, { maxWait: 10 }).acquire(), Refused);
  assert.equal(await hold.release(), true);
  assert.equal(await hold.release(), true);
});

test("a wait that is aborted leaves the line", async () => {
  const name = fresh("lock");
  for (const options of [{}, { maxWait: 30_000 }]) { // with a stream, and without
    const hold = await gh.lock(name).acquire();
    const controller = new AbortController();
    const waiting = gh.lock(name, options).acquire({ signal: controller.signal });
    await until(async () => (await gh.waiters("lock", name)).length === 1);
    controller.abort(new Error("enough"));
    await assert.rejects(waiting, /enough/);
    await until(async () => (await gh.waiters("lock", name)).length === 0);
    await hold.release();
  }
});

test("who waits is told its place", async () => {
  const name = fresh("lock");
  const hold = await gh.lock(name).acquire();
  const place = new Promise((resolve) => {
    gh.lock(name).acquire({ onWaiting: resolve }).then((second) => second.release());
  });
  assert.equal((await place).position, 1);
  await hold.release();
});

test("the next address", async () => {
  const both = new Client([unused, process.env.GATEHOUSE_ADDRESS]);
  assert.equal(await both.counter(fresh("c")).count(), 1n); // nothing was sent to the first
  await both.lock(fresh("lock")).run(() => {});
});

test("a counter is never sent twice", async () => {
  const asked = [];
  const breaking = async (input) => {
    asked.push(input);
    throw new TypeError("the connection broke");
  };
  const both = new Client(["one", "two"], { timeout: 1500, fetch: breaking });
  await assert.rejects(both.counter("c").count(), (error) => error instanceof Unavailable && error.maybeDone);
  assert.equal(asked.length, 1);
  await assert.rejects(both.counter("c").value(), Unavailable);
  assert.ok(asked.length >= 3); // what only looks is sent to both
});

test("budget and grant", async () => {
  const name = fresh("tokens");
  const spend = await gh.budget(name, "1000/1h").reserve(600);
  await assert.rejects(spend.topUp(500), Refused);
  await spend.topUp(100);
  await spend.settle(250);
  await spend.release();
  assert.equal((await gh.limiter(name, undefined, { kind: "slidinglog" }).peek(0)).remaining, 750);
  await gh.grant([{ lock: name }, { gcra: name, limits: "100/1h", cost: 60 }]).run(async (grant) => {
    assert.deepEqual(grant.want.map((member) => member.cost), [1, 60]);
    await grant.settle({ [`gcra/${name}`]: 10 });
  });
  assert.equal((await gh.limiter(name).peek(0)).remaining, 90);
});

test("watchdog", async () => {
  const name = fresh("nightly");
  const dog = gh.watchdog(name, 1500);
  await assert.rejects(dog.run(async () => {
    await until(async () => (await gh.stats("watchdog", name)).kicks >= 3);
    throw new Error("died");
  }), /died/);
  await dog.wait(); // an alarm
});

test("capacity", async () => {
  const name = fresh("db");
  const [one, two] = [gh.capacity(), gh.capacity()];
  const first = one.resource(name, 80);
  await first.ready();
  assert.equal(first.capacity, 80);
  await first.wait(2);
  const second = two.resource(name, 80);
  await second.ready();
  assert.equal(second.capacity, 20);
  await first.release();
  assert.equal(first.capacity, 0);
  await Promise.all([one.close(), two.close()]);
  assert.equal(second.capacity, 0);
});

test("batch and stats", async () => {
  const name = fresh("c");
  const answers = await gh.batch([{ counter: name, op: "count" }, { lock: name, op: "release", key: "k" }]);
  assert.deepEqual(answers.map((answer) => answer.outcome), ["granted", "conflict"]);
  assert.equal((await gh.stats("counter", name)).increments, 1);
});
