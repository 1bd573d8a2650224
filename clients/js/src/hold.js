// What one holds: renewed by a timer of its own until it is released or lost.

import { deliver, now, setTimer } from "./delivery.js";
import { Conflict, GatehouseError, HoldLost, Missing, Refused, Unavailable } from "./errors.js";
import { Term } from "./term.js";
import { command, granted, grantCall, grantCommand, milliseconds, newId, readDecision, readGrant } from "./wire.js";

const releaseTimeout = 5000;
const giveUpTimeout = 1000;
const noRenewal = "its term is over, and no renewal was answered";

/** Whether a server says by an error that a hold is held no more. */
const isNotHeld = (error) => error instanceof Conflict || error instanceof Missing;

/** How a semaphore or a lock is named on the wire. */
export function heldName(kind, name, parameters) {
  const key = parameters.key ?? newId();
  const fenced = (fence) => ({ key, fence: fence || undefined });
  return {
    subject: `${kind}/${name}`,
    key,
    ours: parameters.key === undefined, // so that nobody else can hold with it
    acquire: command(kind, name, "acquire", { ...parameters, key }),
    read: readDecision,
    renew: (fence) => command(kind, name, "renew", fenced(fence)),
    release: (fence) => command(kind, name, "release", fenced(fence)),
  };
}

/** How a grant is named on the wire. */
export function heldGrant(body) {
  const id = body.id ?? newId();
  const fenced = (fence) => (fence ? { fence } : {});
  return {
    subject: `grant/${id}`,
    key: id,
    ours: body.id === undefined,
    acquire: grantCommand({ ...body, id }),
    read: readGrant,
    renew: (fence) => grantCall(id, "renew", fenced(fence)),
    release: (fence, costs) => grantCall(id, "release", { ...costs, ...fenced(fence) }),
  };
}

/**
 * Something that is held. It is renewed after each third of its term. If it is lost, `signal` is aborted, `lost` is
 * true, and `check()` and `release()` throw HoldLost; all that before anybody else can be granted what was held.
 */
export class Hold {
  #client;
  #held;
  #term;
  #reason;
  #released;
  #timer;
  #expiry;
  #stop = new AbortController();
  #loss = new AbortController();

  /** For guards: nobody else makes one. */
  constructor(client, held, decision, sentAt) {
    this.#client = client;
    this.#held = held;
    this.decision = decision;
    this.#term = new Term(sentAt, decision.expiresAfter);
  }

  /** The key, or the id of a grant. */
  get key() {
    return this.#held.key;
  }

  /** The fencing token: send it with every write, and refuse those with a smaller one. */
  get fence() {
    return this.decision.fence;
  }

  /** Aborted with HoldLost when it is lost. Give it to all that works under the hold. */
  get signal() {
    return this.#loss.signal;
  }

  /** Whether it is held no more, by the clock and by what servers have answered. */
  get lost() {
    return this.#reason !== undefined || (this.#released === undefined && now() >= this.#term.ends);
  }

  /** For how many ms it is held for sure, without another renewal. */
  get remaining() {
    return this.#ended ? 0 : Math.max(0, this.#term.ends - now());
  }

  /** Whether it was released or lost. */
  get #ended() {
    return this.#released !== undefined || this.#reason !== undefined;
  }

  /** Throw HoldLost if it is held no more. Call it before each step that matters. */
  check() {
    if (this.lost) throw this.#error();
  }

  #error() {
    this.#reason ??= noRenewal;
    return new HoldLost(`${this.#held.subject} is lost: ${this.#reason}`);
  }

  /** For guards: renew it from now on. */
  async begin(signal) {
    if (this.#term.lasts === Infinity) return;
    if (now() >= this.#term.renewAt) {
      // The answer took so long, perhaps in line, that its term may be over: nobody knows when it began.
      try {
        await this.#renew({ signal });
      } catch (error) {
        if (!isNotHeld(error)) throw error;
        throw new HoldLost(`${this.#held.subject} was lost before it was used: ${error.message}`);
      }
    }
    this.#watch();
    this.#schedule(this.#term.renewAt);
  }

  /** Know of the end at its instant, whatever a renewal is waiting for just then. */
  #watch() {
    clearTimeout(this.#expiry);
    if (this.#ended) return;
    this.#expiry = setTimer(() => {
      if (now() < this.#term.ends) this.#watch();
      else this.#lose(noRenewal);
    }, Math.max(0, this.#term.ends - now()));
    this.#expiry.unref?.();
  }

  #schedule(due) {
    if (this.#ended) return;
    this.#timer = setTimer(() => this.#beat(due), Math.max(0, Math.min(due, this.#term.ends) - now()));
    this.#timer.unref?.(); // a program that has nothing else to do may end, and its hold with it
  }

  async #beat(due) {
    const at = now();
    if (at >= this.#term.ends) return this.#lose(noRenewal);
    if (at < due) return this.#schedule(due);
    try {
      await this.#renew({ timeout: this.#term.patienceAt(at), signal: this.#stop.signal });
      this.#watch();
      this.#schedule(this.#term.renewAt);
    } catch (error) {
      if (this.#ended) return;
      if (isNotHeld(error)) return this.#lose(error.message);
      this.#schedule(now() + this.#term.pause); // one missed beat does no harm
    }
  }

  async #renew(how) {
    const told = {};
    const answer = this.#held.read(await deliver(this.#client, this.#held.renew(this.fence), { ...how, told }));
    this.#term.start(told.sentAt, answer.expiresAfter);
  }

  #lose(reason) {
    if (this.#ended) return;
    this.#reason = reason;
    clearTimeout(this.#timer);
    clearTimeout(this.#expiry);
    this.#loss.abort(this.#error());
    this.#stop.abort(); // a renewal that is under way
  }

  /**
   * Give it back, and say whether a server was told: if none answers it ends by itself. Throws HoldLost if it was
   * lost. To release twice does no harm.
   */
  release(costs) {
    this.#released ??= this.#release(costs ?? this.finalCosts());
    return this.#released;
  }

  /** What a reservation says at the end. */
  finalCosts() {
    return undefined;
  }

  async #release(costs) {
    const over = this.#reason !== undefined || now() >= this.#term.ends;
    clearTimeout(this.#timer);
    clearTimeout(this.#expiry);
    this.#stop.abort();
    if (over) {
      const error = this.#error();
      await this.tellRelease(costs, this.#term.patience, false);
      throw error;
    }
    return this.tellRelease(costs, releaseTimeout, true);
  }

  /** For guards: tell a server. */
  async tellRelease(costs, timeout, strict) {
    const told = {};
    try {
      this.#held.read(await deliver(this.#client, this.#held.release(this.fence, costs), { timeout, told }));
      return true;
    } catch (error) {
      if (error instanceof Unavailable) return false;
      if (!isNotHeld(error)) throw error;
      if (told.maybeDone) return true; // by an earlier try, whose answer was lost
      if (!strict) return false;
      this.#reason = error.message;
      const lost = this.#error();
      this.#loss.abort(lost);
      throw lost;
    }
  }

  /** For grants: a call on it. */
  async callGrant(op, body) {
    this.check();
    return readGrant(await deliver(this.#client, grantCall(this.key, op, { ...body, fence: this.fence })));
  }
}

// "await using" is for programs whose JavaScript has it; all others call release().
if (Symbol.asyncDispose) {
  Hold.prototype[Symbol.asyncDispose] = async function () {
    await this.release();
  };
}

/** A grant over several names: slots and locks that are held, and tokens that are settled later. */
export class Grant extends Hold {
  get id() {
    return this.key;
  }

  /** The members as the server has answered them. */
  get want() {
    return this.decision.want;
  }

  /** Say what each name has cost so far, such as {"gcra/tokens": 250}. The last figure counts. */
  settle(costs) {
    return this.callGrant("settle", costs);
  }

  /** Take more of its limiters, all or nothing. Throws Refused. It is never sent twice. */
  async topUp(costs, { maxWait = 0 } = {}) {
    return granted(await this.callGrant("topup", { ...costs, maxwait: milliseconds(maxWait) }));
  }
}

/** Some of a budget: taken by an estimate, and settled by what was spent. */
export class Reservation extends Grant {
  #spent;

  get #member() {
    const member = this.want[0];
    const kind = Object.keys(member)[0];
    return `${kind}/${member[kind]}`;
  }

  /** Say what was spent so far, all together. The last figure counts. */
  settle(spent) {
    this.#spent = spent;
    return super.settle({ [this.#member]: spent });
  }

  /** Take so much more before it is spent. Throws Refused. */
  topUp(more, how) {
    return super.topUp({ [this.#member]: more }, how);
  }

  finalCosts() {
    return this.#spent === undefined ? undefined : { [this.#member]: this.#spent };
  }
}

/** Something that can be held, again and again: each time it is a hold of its own. */
export class Guard {
  #client;
  #make;
  #Kind;
  #how;

  constructor(client, Kind, make, how) {
    this.#client = client;
    this.#Kind = Kind;
    this.#make = make;
    this.#how = how;
  }

  /**
   * Take it, and wait for it in line. Throws Refused, or the reason of `signal` when that is aborted; the server
   * frees the place then.
   */
  async acquire({ maxWait = this.#how.maxWait, signal = this.#how.signal, onWaiting = this.#how.onWaiting } = {}) {
    const held = this.#make(milliseconds(maxWait));
    // A stream is told its place, and shows within 45 s that the server is gone, however long it waits.
    held.acquire.stream = held.acquire.waits && (onWaiting !== undefined || !(maxWait <= 60_000));
    const told = {};
    let answer;
    try {
      answer = await deliver(this.#client, held.acquire, { told, signal, onWaiting });
    } catch (error) {
      // It may have been granted at that very moment, to nobody but this call.
      const sent = error instanceof Unavailable ? error.maybeDone : told.sent;
      if (sent && held.ours) await this.#giveUp(held);
      throw error;
    }
    const hold = new this.#Kind(this.#client, held, granted(held.read(answer)), told.sentAt);
    try {
      await hold.begin(signal);
    } catch (error) {
      await hold.tellRelease(undefined, giveUpTimeout, false);
      throw error;
    }
    return hold;
  }

  async #giveUp(held) {
    try {
      held.read(await deliver(this.#client, held.release(0), { timeout: giveUpTimeout }));
    } catch (error) {
      if (!(error instanceof GatehouseError)) throw error;
    }
  }

  /** Take it if that is possible at once, or return null. */
  async tryAcquire(how) {
    try {
      return await this.acquire({ ...how, maxWait: 0 });
    } catch (error) {
      if (error instanceof Refused) return null;
      throw error;
    }
  }

  /** Hold it while a function runs, which is given the hold. Throws HoldLost if it was lost. */
  async run(work, how) {
    const hold = await this.acquire(how);
    let result;
    try {
      result = await work(hold);
    } catch (error) {
      try {
        await hold.release();
      } catch (lost) {
        lost.cause = error;
        throw lost;
      }
      throw error;
    }
    await hold.release();
    return result;
  }
}
