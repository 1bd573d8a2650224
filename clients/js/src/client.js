// The client, and what it is asked for: limits, holds, events, counters, budgets.

import { Capacity } from "./capacity.js";
import { Servers, deliver, now, sleep } from "./delivery.js";
import { GatehouseError } from "./errors.js";
import { Grant, Guard, Hold, Reservation, heldGrant, heldName } from "./hold.js";
import { Term } from "./term.js";
import { fetchOverTLS } from "./tls.js";
import {
  command, grantCall, grantCommand, granted, limitParameters, limiters, milliseconds, namePath, readDecision,
  readGrant, readJson,
} from "./wire.js";

/** A fetch that says to servers with users who asks. */
function withToken(token, fetch) {
  if (token === "") return fetch;
  // The text is not shown: it is a secret, and most of it may be right.
  if (!/^[!-~]+$/.test(token)) {
    throw new RangeError("token has a character that no token has, want printable ASCII without blanks");
  }
  return (url, init) => fetch(url, { ...init, headers: { ...init.headers, Authorization: `Bearer ${token}` } });
}

/**
 * A client of one or several servers: addresses are tried in turn when one fails. `timeout` bounds each answer,
 * beyond what a call itself waits, and how long a call is tried again after a failure. All times are in ms.
 */
export class Client {
  constructor(addresses = "localhost:5505", options = {}) {
    const { timeout = 5000, owner, host, purpose, tls } = options;
    const { fetch = tls ? fetchOverTLS(tls) : globalThis.fetch } = options;
    const { token = globalThis.process?.env?.GATEHOUSE_TOKEN ?? "" } = options;
    this.servers = new Servers(addresses, tls !== undefined);
    this.timeout = timeout;
    this.owner = Object.fromEntries(Object.entries({ owner, host, purpose }).filter(([, text]) => text));
    this.fetch = withToken(token, (...request) => fetch(...request)); // no method: a browser's fetch refuses that
  }

  /** One call, with the parameters of the HTTP API. A refusal is a decision; what else is not granted throws. */
  async do(kind, name, op, parameters = {}, { timeout, signal } = {}) {
    const given = op === "acquire" || op === "wait" ? { ...this.owner, ...parameters } : parameters;
    return readDecision(await deliver(this, command(kind, name, op, given), { timeout, signal }));
  }

  /** Ask for a grant, with the body of the HTTP API. It is not renewed. */
  async doGrant(body, { signal } = {}) {
    return readGrant(await deliver(this, grantCommand(body), { signal }));
  }

  /** renew, topup, settle, release or peek of a grant, with the body of the HTTP API. */
  async callGrant(id, op, body) {
    return readGrant(await deliver(this, grantCall(id, op, body)));
  }

  /** Up to 1,000 commands, each judged apart; the answers are as the HTTP API has them. */
  async batch(commands) {
    const call = { subject: "batch", method: "POST", path: "/v1/batch", parameters: { commands }, json: true };
    return readJson(await deliver(this, call)).answers;
  }

  /** The figures of one name. Throws Missing. */
  async stats(kind, name) {
    return readJson(await deliver(this, command(kind, name, "stats")));
  }

  /** Who holds a semaphore or a lock, the eldest first, at most 1,000. */
  async holders(kind, name) {
    return readJson(await deliver(this, command(kind, name, "holders", { limit: 1000 }))).holders;
  }

  /** Who waits at a name, by place in line, at most 1,000. */
  async waiters(kind, name) {
    return readJson(await deliver(this, command(kind, name, "waiters", { limit: 1000 }))).waiters;
  }

  /** Forget a name, and say whether there was one. Who waits at it gets Deleted. */
  async delete(kind, name) {
    const subject = `${kind}/${name}: delete`;
    const answer = await deliver(this, { subject, method: "DELETE", path: namePath(kind, name), parameters: {} });
    if (answer.status === 404) return false;
    readJson(answer);
    return true;
  }

  /** At most `size` at once. Without one the size in force stays. */
  semaphore(name, size, options = {}) {
    return this.#guard("semaphore", name, { size, cost: options.cost }, options);
  }

  /** One at a time. */
  lock(name, options = {}) {
    return this.#guard("lock", name, {}, options);
  }

  #guard(kind, name, parameters, options) {
    const { expires = 60_000, key } = options;
    const make = (maxwait) =>
      heldName(kind, name, { ...this.owner, ...parameters, expires: milliseconds(expires), key, maxwait });
    return new Guard(this, Hold, make, options);
  }

  /** Several names at once, all or nothing: [{lock: "repo"}, {gcra: "api", limits: "5/1s", cost: 2}]. */
  grant(want, options = {}) {
    return this.#grantGuard(Grant, want, options);
  }

  #grantGuard(Kind, want, options) {
    const { expires = 60_000, id, overrun, onExpiry } = options;
    const { owner, ...where } = this.owner;
    const body = { want, expires: milliseconds(expires), id, overrun, "on-expiry": onExpiry };
    if (Object.keys(this.owner).length > 0) body.owner = { name: owner, ...where };
    return new Guard(this, Kind, (maxwait) => heldGrant({ ...body, maxwait }), options);
  }

  /** So many per interval: limiter("api", "5/1s"), or limiter("api", {size: 5, interval: 1000}). */
  limiter(name, limit, { kind = "gcra" } = {}) {
    return new Limiter(this, kind, name, limit);
  }

  /** So much per interval of what is known only afterwards, such as the tokens of a model. */
  budget(name, limit, { kind = "slidinglog" } = {}) {
    checkKind(kind);
    const reserve = (estimate, options = {}) => {
      const member = { [kind]: name, cost: estimate, ...limitParameters(limit) };
      if (options.clip) member.fit = "clip";
      return this.#grantGuard(Reservation, [member], options).acquire();
    };
    return { reserve };
  }

  /** Something that happens once. */
  event(name) {
    return new Event(this, name);
  }

  /** All are there. */
  barrier(name, size = 2) {
    return new Barrier(this, name, size);
  }

  /** Something that must not fall silent for `expires` ms. */
  watchdog(name, expires = 60_000) {
    return new Watchdog(this, name, expires);
  }

  /** A number that many add to. */
  counter(name) {
    return new Counter(this, name);
  }

  /** Leases on shares of a capacity. Close it when done. */
  capacity(options) {
    return new Capacity(this, options);
  }
}

function checkKind(kind) {
  if (!limiters.includes(kind)) throw new TypeError(`${kind} is no kind of limiter, want one of ${limiters.join(", ")}`);
}

/** So many per interval. */
export class Limiter {
  #client;
  #limit;

  constructor(client, kind, name, limit) {
    checkKind(kind);
    this.#client = client;
    this.kind = kind;
    this.name = name;
    this.#limit = limitParameters(limit);
  }

  #do(op, parameters, how) {
    return this.#client.do(this.kind, this.name, op, parameters, how);
  }

  /** Take so many, and wait for them. Throws Refused. It is sent once, as it could be taken twice otherwise. */
  async acquire(cost = 1, { maxWait, signal } = {}) {
    return granted(await this.#do("acquire", { ...this.#limit, cost, maxwait: milliseconds(maxWait) }, { signal }));
  }

  /** As acquire, for whoever only wants to wait. */
  async wait(n = 1, how) {
    await this.acquire(n, how);
  }

  /** Take so many if they are there; `granted` of the decision says whether they were. */
  tryAcquire(cost = 1, { timeout, signal } = {}) {
    return this.#do("acquire", { ...this.#limit, cost, maxwait: 0 }, { timeout, signal });
  }

  /** What an acquire would be answered now. */
  peek(cost = 1) {
    return this.#do("peek", { ...this.#limit, cost });
  }

  /** How many ms it is until so many could be taken, or null if that is never as things are. */
  async delay(cost = 1) {
    return (await this.#do("delay", { ...this.#limit, cost })).delay;
  }

  /** Take the earliest place, and say how many ms it is until then. Throws Refused. */
  async reserve(cost = 1, key) {
    return granted(await this.#do("reserve", { ...this.#limit, cost, key })).delay;
  }

  /** Give back the place that was reserved with this key. */
  async cancel(key) {
    await this.#do("cancel", { key });
  }

  /** Give back what was taken. */
  refund(cost = 1) {
    return this.#do("refund", { cost });
  }

  /** Take what was spent already. It is sent once. */
  charge(cost = 1) {
    return this.#do("charge", { ...this.#limit, cost });
  }

  /** Forget all that was taken and reserved. */
  async reset() {
    await this.#do("reset");
  }

  /** Tell what a third party has answered. A 429 pauses the limiter for everybody. It is sent once. */
  async feedback(status, { retryAfter, remaining, reset } = {}) {
    const given = { ...this.#limit, status };
    if (retryAfter !== undefined) given["retry-after"] = milliseconds(retryAfter);
    if (reset !== undefined) Object.assign(given, { reset: milliseconds(reset), remaining });
    await this.#do("feedback", given);
  }
}

/** Something that happens once; who waits for it is told, also later. */
export class Event {
  #client;

  constructor(client, name) {
    this.#client = client;
    this.name = name;
  }

  /** Say that it has happened. Throws Conflict if that was said before. It is sent once. */
  async send(message = "") {
    await this.#client.do("event", this.name, "send", { message });
  }

  /** Wait for it, and return its message. Throws Refused. */
  async wait({ maxWait, signal } = {}) {
    const parameters = { maxwait: milliseconds(maxWait) };
    return granted(await this.#client.do("event", this.name, "wait", parameters, { signal })).message;
  }
}

/** All are there. */
export class Barrier {
  #client;

  constructor(client, name, size) {
    this.#client = client;
    this.name = name;
    this.size = size;
  }

  /** Come, and wait for the others. Throws Refused, or Conflict if it has opened already. */
  async wait({ maxWait, signal } = {}) {
    const parameters = { size: this.size, maxwait: milliseconds(maxWait) };
    granted(await this.#client.do("barrier", this.name, "wait", parameters, { signal }));
  }
}

/** A number that many add to. It has 64 bits, so it is a bigint. */
export class Counter {
  #client;

  constructor(client, name) {
    this.#client = client;
    this.name = name;
  }

  /** Add, and return the new value. It is sent once, so that nothing is counted twice. */
  async count(amount = 1) {
    return (await this.#client.do("counter", this.name, "count", { amount })).value;
  }

  /** The value. */
  async value() {
    return (await this.#client.do("counter", this.name, "value")).value;
  }

  /** Set the value. */
  async reset(value = 0) {
    await this.#client.do("counter", this.name, "reset", { value });
  }
}

/** Something that must not fall silent. */
export class Watchdog {
  #client;

  constructor(client, name, expires) {
    this.#client = client;
    this.name = name;
    this.expires = expires;
  }

  /** Say that all is well, for `expires` ms. */
  async kick(expires = this.expires, { timeout, signal } = {}) {
    const parameters = { expires: milliseconds(expires) };
    await this.#client.do("watchdog", this.name, "kick", parameters, { timeout, signal });
  }

  /** Wait until it has fallen silent. Throws Refused if it has not within `maxWait`. */
  async wait({ maxWait, signal } = {}) {
    const parameters = { maxwait: milliseconds(maxWait) };
    granted(await this.#client.do("watchdog", this.name, "wait", parameters, { signal }));
  }

  /**
   * Kick it while a function runs. If that fails the watchdog is left alone, so that it fires; if it ends well the
   * watchdog is deleted, and who waits gets Deleted in place of an alarm.
   */
  async run(work) {
    await this.kick();
    const stop = new AbortController();
    const kicking = this.#keep(stop.signal);
    let result;
    try {
      result = await work();
    } finally {
      stop.abort();
      await kicking;
    }
    await this.#client.delete("watchdog", this.name);
    return result;
  }

  async #keep(signal) {
    const term = new Term(now(), this.expires);
    let due = term.renewAt;
    while (!signal.aborted) {
      try {
        await sleep(Math.max(0, due - now()), signal);
        due = now() + this.expires / 3;
        await this.kick(this.expires, { timeout: term.patience, signal });
      } catch (error) {
        if (signal.aborted) return;
        if (!(error instanceof GatehouseError)) throw error;
        due = now() + term.pause;
      }
    }
  }
}
