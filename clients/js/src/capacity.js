// Leases on shares of a capacity: one request asks for all resources of a client.

import { deliver, now, setTimer, sleep } from "./delivery.js";
import { GatehouseError, Refused, Unavailable } from "./errors.js";
import { newId, readJson } from "./wire.js";

const firstPause = 1300;
const longestPause = 60_000;
const coarse = 2000; // by how many ms the header Date may be behind: whole seconds, renewed each second

/** A share of something. Nothing here asks a server, so nothing waits for one. */
export class Resource {
  #owner;
  #next = 0;

  /** For Capacity: nobody else makes one. */
  constructor(owner, share) {
    this.#owner = owner;
    this.share = share;
  }

  get name() {
    return this.share.name;
  }

  /** What may be used now; Infinity is without limit. */
  get capacity() {
    if (this.share.released) return 0;
    const lease = heldLease(this.share);
    if (lease !== undefined) return lease.capacity;
    return this.share.safe < 0 ? Infinity : this.share.safe;
  }

  /** Whether a lease says so. */
  get leased() {
    return heldLease(this.share) !== undefined;
  }

  /** Ask for another amount from now on. */
  want(wants) {
    this.share.wants = checkWants(wants);
    this.#owner.wake();
  }

  /** Wait for the first lease. */
  async ready({ signal } = {}) {
    while (this.share.lease === undefined && !this.share.released) await this.#owner.change(signal);
  }

  /** Wait until `n` may go, at `capacity` per second, evenly. Throws Refused. */
  async wait(n = 1, { maxWait = Infinity, signal } = {}) {
    const giveUp = now() + maxWait;
    const refused = () => new Refused(`capacity/${this.name}: ${n} not granted within ${maxWait} ms`);
    let at;
    while ((at = this.#place(n, giveUp)) === undefined) {
      if (this.share.released || now() >= giveUp) throw refused();
      await this.#owner.change(signal, giveUp - now());
    }
    if (at === null) throw refused();
    await sleep(Math.max(0, at - now()), signal);
  }

  /** When these may go: undefined while nothing may, null if that is too late. */
  #place(n, giveUp) {
    const rate = this.capacity / 1000;
    if (rate === Infinity) return now();
    if (rate <= 0) return undefined;
    // After a pause a hundredth of a second's worth may go at once.
    const start = Math.max(this.#next, now() - 10);
    if (start > giveUp) return null;
    this.#next = start + n / rate;
    return start;
  }

  /** Give it back, so that others have it at once. */
  release() {
    return this.#owner.giveUp(this.share);
  }
}

/** The lease of a share, unless it has ended. */
const heldLease = ({ lease }) => (lease !== undefined && now() < lease.ends ? lease : undefined);

/** A client of leases. `id` must be its own: two of one name have one lease. */
export class Capacity {
  #client;
  #id;
  #onError;
  #shares = new Map();
  #timer;
  #nextAsk = 0;
  #failures = 0;
  #asking;
  #closed = false;
  #stop = new AbortController();
  #listeners = new Set();

  constructor(client, { id = newId(), onError } = {}) {
    this.#client = client;
    this.#id = id;
    this.#onError = onError;
  }

  /** Ask for a share of something from now on, until it is released. */
  resource(name, wants, { priority = 0 } = {}) {
    if (this.#closed) throw new Error("the client of leases is closed");
    if (this.#shares.has(name)) throw new RangeError(`resource ${name} is there already`);
    const share = { name, wants: checkWants(wants), priority, lease: undefined, safe: 0, released: false };
    this.#shares.set(name, share);
    this.wake();
    return new Resource(this, share);
  }

  /** For resources: something has changed, look when to ask. */
  wake() {
    clearTimeout(this.#timer);
    if (this.#closed || this.#asking || this.#shares.size === 0) return;
    const fresh = this.#failures === 0 && [...this.#shares.values()].some((share) => share.asked !== share.wants);
    const pause = fresh ? 0 : Math.max(0, this.#nextAsk - now());
    this.#timer = setTimeout(() => {
      this.#asking = this.#ask().finally(() => {
        this.#asking = undefined;
        this.#tell();
        this.wake();
      });
    }, pause);
    if (!fresh) this.#timer.unref?.();
  }

  /** For resources: wait for the next change, or for so many ms. */
  change(signal, time = Infinity) {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      let timer;
      const leave = () => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", stop);
        this.#listeners.delete(listener);
      };
      const stop = () => {
        leave();
        reject(signal.reason);
      };
      const listener = () => {
        leave();
        resolve();
      };
      signal?.addEventListener("abort", stop, { once: true });
      this.#listeners.add(listener);
      if (time < Infinity) {
        timer = setTimer(listener, Math.max(0, time));
        timer.unref?.();
      }
    });
  }

  #tell() {
    const listeners = [...this.#listeners];
    this.#listeners.clear();
    for (const listener of listeners) listener();
  }

  async #ask() {
    const resource = [...this.#shares.values()].map((share) => ({
      resource_id: share.name,
      wants: share.wants,
      priority: share.priority || undefined,
      has: heldLease(share)?.claim,
    }));
    const told = {};
    try {
      const answer = await deliver(this.#client, this.#call("get", { resource }), { told, signal: this.#stop.signal });
      this.#learn(answer, resource, told.sentAt);
    } catch (error) {
      if (this.#closed) return;
      this.#failed();
      this.#client.servers.passOver(this.#client.servers.current); // perhaps another is the master
      if (!(error instanceof GatehouseError)) throw error;
      this.#onError?.(error);
    }
  }

  #call(op, body) {
    const parameters = { client_id: this.#id, ...body };
    return { subject: `capacity: ${op}`, method: "POST", path: `/v1/capacity/${op}`, parameters, safe: true, json: true };
  }

  #learn(answer, asked, sentAt) {
    const found = readJson(answer);
    if (found.response === undefined) throw new Unavailable("the server is not the master of capacity");
    const date = Date.parse(answer.headers.get("date") ?? "");
    // What is left by the server's clock, from before the request was sent: clocks need not agree. A page of
    // another origin cannot read that header, and takes its own clock.
    const wall = Number.isNaN(date) ? Date.now() : date + coarse;
    let soonest = Infinity;
    for (const { resource_id: name, gets, safe_capacity: safe } of found.response) {
      const share = this.#shares.get(name);
      if (share === undefined) continue;
      const left = Math.min(Math.max(0, gets.expiry_time * 1000 - wall), 3_600_000);
      const refresh = Math.min(Math.max(1000, gets.refresh_interval * 1000), Math.max(1000, left * 0.8));
      share.lease = { capacity: gets.capacity, ends: sentAt + left, claim: gets };
      share.safe = safe ?? 0;
      share.asked = asked.find((one) => one.resource_id === name).wants;
      soonest = Math.min(soonest, sentAt + refresh * (refresh < left * 0.7 ? 1 + Math.random() / 10 : 1));
    }
    this.#failures = 0;
    this.#nextAsk = soonest === Infinity ? now() + firstPause : soonest;
  }

  #failed() {
    let pause = Math.min(longestPause, firstPause * 1.3 ** Math.min(this.#failures++, 20));
    // While a lease holds, ask before long, so that a new master learns of it.
    for (const share of this.#shares.values()) {
      const lease = heldLease(share);
      if (lease !== undefined) pause = Math.max(200, Math.min(pause, (lease.ends - now()) / 4));
    }
    this.#nextAsk = now() + pause * (1 - Math.random() / 2);
  }

  /** For resources: give one back. */
  async giveUp(share) {
    if (share.released) return;
    share.released = true;
    this.#shares.delete(share.name);
    this.#tell();
    await this.#giveBack([share.name]);
  }

  async #giveBack(names) {
    try {
      await deliver(this.#client, this.#call("release", { resource_id: names }));
    } catch (error) {
      if (!(error instanceof GatehouseError)) throw error; // it ends by itself, with its lease
    }
  }

  /** Give everything back, and ask no more. */
  async close() {
    if (this.#closed) return;
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#stop.abort();
    await this.#asking;
    const names = [...this.#shares.keys()];
    for (const share of this.#shares.values()) share.released = true;
    this.#tell();
    if (names.length > 0) await this.#giveBack(names);
  }
}

if (Symbol.asyncDispose) {
  Capacity.prototype[Symbol.asyncDispose] = function () {
    return this.close();
  };
}

function checkWants(wants) {
  if (!(wants >= 0 && wants <= 1e15)) throw new RangeError(`wants ${wants}: want 0 to 1e15`);
  return wants;
}
