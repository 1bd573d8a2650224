// How a call reaches a server: which address, when again, and when no more.

import { Unavailable } from "./errors.js";
import { maxWaitOf, requestOf } from "./wire.js";

const firstPause = 20;
const longestPause = 1000;

// Some implementations of fetch give up after 300 s without a head. A call that waits longer is asked again.
const longestWait = 240_000;

// A stream says something every 15 s; after three times that nobody is there.
const longestSilence = 45_000;

/** The monotonic clock, in ms. */
export const now = () => performance.now();

const longestTimer = 2 ** 31 - 1; // ms; setTimeout takes more for 1 ms

/** As setTimeout, also for a time that is too long for that: it ends early, so what it runs looks at the clock. */
export const setTimer = (run, time) => setTimeout(run, Math.min(time, longestTimer));

/** The addresses, and which of them answered last. */
export class Servers {
  constructor(addresses, secure = false) {
    const list = Array.isArray(addresses) ? addresses : [addresses];
    if (list.length === 0) throw new RangeError("no address of a server, want at least one");
    this.all = list.map((text) => {
      const url = new URL(text.includes("://") ? text : `${secure ? "https" : "http"}://${text}`);
      return url.href.replace(/\/+$/, "");
    });
    this.index = 0;
  }

  get current() {
    return this.all[this.index];
  }

  passOver(address) {
    if (this.current === address) this.index = (this.index + 1) % this.all.length;
  }
}

/**
 * Send a call until it is answered, as often as is safe. `told` learns when the try that was answered was sent,
 * and whether an earlier one may have taken effect.
 */
export async function deliver(client, call, { timeout = client.timeout, told = {}, signal, onWaiting } = {}) {
  const { servers } = client;
  const began = now();
  const wait = maxWaitOf(call);
  let giveUp = wait === 0 ? began + timeout : Infinity;
  const each = call.safe ? timeout / servers.all.length : timeout; // one that hangs leaves time for others
  let failures = 0;
  for (;;) {
    signal?.throwIfAborted();
    const sentAt = now();
    told.sent = true;
    told.sentAt = sentAt;
    const left = Math.max(0, wait - (sentAt - began));
    const asked = call.stream ? left : Math.min(left, longestWait);
    const limit = asked + Math.max(1, Math.min(each, giveUp - sentAt));
    const address = servers.current;
    const outcome = await send(client.fetch, address, call, { asked, limit, signal, onWaiting });
    const answered = outcome.status !== undefined;
    if (answered && ![502, 503, 504].includes(outcome.status)) {
      if (asked < left && isRefusal(outcome)) continue; // its turn may still come
      return outcome;
    }
    const failedAt = now();
    if (giveUp === Infinity || (wait !== 0 && failedAt - sentAt > timeout)) {
      giveUp = failedAt + timeout; // all was well until now
      failures = 0;
    }
    if (!call.safe && answered) return outcome;
    if (!answered) {
      if (outcome.sent) told.maybeDone = true;
      if (outcome.sent && !call.safe) throw unanswered(call, address, outcome);
    }
    servers.passOver(address);
    failures++;
    // Every address has a turn at once; only a round in vain is followed by a pause.
    let pause = 0;
    if (failures % servers.all.length === 0) {
      pause = Math.min(longestPause, firstPause * 2 ** Math.min(failures / servers.all.length - 1, 10));
    }
    if (failedAt + pause >= giveUp) {
      if (answered) return outcome;
      throw unanswered(call, address, outcome);
    }
    if (pause > 0) await sleep(pause, signal);
  }
}

const isRefusal = (answer) => answer.status === 429 || /^\{"outcome":"refused"/.test(answer.text);

/** One try: the answer, or why there is none and whether the request may have arrived. */
async function send(fetch, address, call, { asked, limit, signal, onWaiting }) {
  const { path, init } = requestOf(call, asked);
  const controller = new AbortController();
  const abort = () => controller.abort(signal.reason);
  signal?.addEventListener("abort", abort, { once: true });
  let timedOut = false;
  let timer;
  const expire = (after) => {
    clearTimeout(timer);
    if (after === Infinity) return;
    timer = setTimer(() => {
      timedOut = true;
      controller.abort();
    }, after);
  };
  try {
    expire(call.stream ? Math.min(limit, longestSilence) : limit);
    const response = await fetch(address + path, { ...init, signal: controller.signal, redirect: "error", cache: "no-store" });
    if (response.headers.get("content-type")?.startsWith("text/event-stream")) {
      return await readStream(response, () => expire(longestSilence), onWaiting);
    }
    return { status: response.status, headers: response.headers, text: await response.text() };
  } catch (error) {
    signal?.throwIfAborted();
    if (timedOut) return { reason: "no answer in time", sent: true };
    const code = error?.cause?.code ?? "";
    const unsent = ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "UND_ERR_CONNECT_TIMEOUT"].includes(code);
    return { reason: error?.cause?.message ?? error?.message ?? String(error), sent: !unsent };
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", abort);
  }
}

/** Read a stream of events to its outcome, and return that as the answer that it stands for. */
async function readStream(response, alive, onWaiting) {
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new Error("the stream ended before there was an outcome");
    alive();
    text += decoder.decode(value, { stream: true });
    let end;
    while ((end = text.indexOf("\n\n")) >= 0) {
      const event = /^event: ?(.*)$/m.exec(text.slice(0, end))?.[1];
      const data = /^data: ?(.*)$/m.exec(text.slice(0, end))?.[1] ?? "{}";
      text = text.slice(end + 2);
      if (event === "waiting") {
        onWaiting?.(JSON.parse(data));
      } else if (event !== undefined) {
        reader.cancel().catch(() => {});
        const found = JSON.parse(data);
        return { status: found.status ?? 200, headers: response.headers, text: data };
      }
    }
  }
}

/** Wait for so many ms, or until a signal. */
export function sleep(time, signal) {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, time);
    signal?.addEventListener("abort", stop, { once: true });
  });
}

function unanswered(call, address, failure) {
  let text = `${call.subject} was not answered by ${address}: ${failure.reason}`;
  if (failure.sent && !call.safe) text += "; it may have taken effect, and is not sent again";
  return new Unavailable(text, { maybeDone: failure.sent });
}
