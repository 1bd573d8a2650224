// Calls and what they are answered: requests as the server reads them, decisions, and errors. No I/O.

import { GatehouseError, Refused, Unavailable, errorFor } from "./errors.js";

export const limiters = ["tokenbucket", "gcra", "fixedwindow", "slidingwindow", "slidinglog", "pace"];
const held = ["semaphore", "lock"];
const repeatable = ["acquire", "renew", "release"];

// Node 18 has no global crypto. A bundler for browsers must not look for that module.
const nodeCrypto = "node:crypto";
const random = globalThis.crypto ?? (await import(/* webpackIgnore: true */ /* @vite-ignore */ nodeCrypto)).webcrypto;

/** A new id that nobody else has, nor can guess. */
export function newId() {
  // randomUUID is there on pages of HTTPS alone.
  const bytes = random.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** A length of time as the server takes it; undefined and Infinity are without limit. */
export function milliseconds(time) {
  if (time === undefined || time === null || time === Infinity) return -1;
  if (!(time >= 0)) throw new RangeError(`a time of ${time} ms: want 0 or more`);
  return Math.ceil(time);
}

const timeOf = (ms) => (ms === undefined || ms === null || ms < 0 ? null : ms);

/** The path of a name. Letters that encodeURIComponent leaves alone are fine in a path. */
export const namePath = (kind, name, ...rest) => ["/v1", kind, encodeURIComponent(name), ...rest].join("/");

/** A call on one name, with the parameters that it has on the wire. */
export function command(kind, name, op, parameters = {}) {
  const given = {};
  for (const [key, value] of Object.entries(parameters)) {
    if (value !== undefined && value !== null) given[key] = value;
  }
  const looks = ["stats", "holders", "waiters"].includes(op);
  if (!looks) given.details = true;
  const waits = (op === "acquire" || op === "wait") && Number(given.maxwait ?? -1) !== 0;
  let safe = looks || ["peek", "delay", "value"].includes(op);
  if (held.includes(kind)) {
    if (op === "acquire") given.key ??= newId(); // so that it can be asked for again
    safe ||= repeatable.includes(op);
  } else if (kind === "event" || kind === "watchdog") {
    safe ||= op === "wait" || op === "kick";
  }
  const path = namePath(kind, name, op);
  return { subject: `${kind}/${name}: ${op}`, method: looks ? "GET" : "POST", path, parameters: given, waits, safe };
}

/** An acquire of a grant. With an id it may be repeated. */
export function grantCommand(body) {
  const waits = (body.maxwait ?? -1) !== 0;
  return { subject: "grant", method: "POST", path: "/v1/grants", parameters: body, waits, safe: "id" in body, json: true };
}

/** A call on a grant that there is. */
export function grantCall(id, op, body = {}) {
  const path = `/v1/grants/${encodeURIComponent(id)}`;
  const subject = `grant/${id}: ${op}`;
  if (op === "peek") return { subject, method: "GET", path, parameters: {}, waits: false, safe: true, json: true };
  // A top-up that is sent twice is taken twice; what is settled is the whole figure.
  const waits = op === "topup" && (body.maxwait ?? 0) !== 0;
  return { subject, method: "POST", path: `${path}/${op}`, parameters: body, waits, safe: op !== "topup", json: true };
}

/** How long the server may take its time, in ms. */
export const maxWaitOf = (call) => {
  if (!call.waits) return 0;
  const wait = Number(call.parameters.maxwait ?? -1);
  return wait < 0 ? Infinity : wait;
};

/** What fetch is given, with a maxwait of what is left. */
export function requestOf(call, maxwait) {
  const parameters = { ...call.parameters };
  const sensible = Number(parameters.maxwait ?? -1) >= -1; // anything else is for the server to refuse
  if (call.waits && maxwait !== Infinity && sensible) parameters.maxwait = Math.max(0, Math.ceil(maxwait));
  const headers = { Accept: call.stream ? "text/event-stream" : "application/json" };
  if (call.method === "POST" && call.json) {
    headers["Content-Type"] = "application/json";
    return { path: call.path, init: { method: "POST", headers, body: JSON.stringify(parameters) } };
  }
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) query.set(name, String(value));
  if (call.method === "POST") {
    headers["Content-Type"] = "application/x-www-form-urlencoded";
    return { path: call.path, init: { method: "POST", headers, body: query.toString() } };
  }
  const text = query.toString();
  return { path: call.json || !text ? call.path : `${call.path}?${text}`, init: { method: call.method, headers } };
}

/** The object that an answer holds, if it was granted. */
export function readJson(answer) {
  let found;
  try {
    found = answer.text === "" ? {} : JSON.parse(answer.text);
  } catch {
    found = undefined;
  }
  if (answer.status < 300 && found !== undefined) return found;
  if (found?.code !== undefined) {
    throw errorFor(found.code, found.detail ?? "", answer.status, timeOf(found.retry_after_ms));
  }
  const detail = `the answer has status ${answer.status} and says ${JSON.stringify(answer.text.slice(0, 200))}`;
  if (answer.status >= 502) throw new Unavailable(detail, { status: answer.status, maybeDone: true });
  throw new GatehouseError(detail, { status: answer.status });
}

/** The decision that an answer tells. A refusal is one; all else that is not granted is an error. */
export function readDecision(answer) {
  const found = readJson(answer);
  if (found.outcome !== "granted" && found.outcome !== "refused") {
    throw errorFor(found.outcome, found.detail ?? "", answer.status);
  }
  // A counter has 64 bits, and a number of JavaScript 53.
  const value = typeof found.value === "number" ? BigInt(/"value":(-?\d+)/.exec(answer.text)[1]) : null;
  return {
    granted: found.outcome === "granted",
    limit: found.limit ?? null,
    remaining: found.remaining ?? null,
    retryAfter: timeOf(found.retry_after),
    resetAfter: timeOf(found.reset_after),
    delay: timeOf(found.delay),
    key: found.key ?? "",
    fence: found.fence ?? 0,
    expiresAfter: timeOf(found.expires_after),
    value,
    message: found.message ?? "",
    detail: found.detail ?? "",
    headers: answer.headers,
    raw: found,
  };
}

/** The decision over several names that an answer tells. */
export function readGrant(answer) {
  if (answer.status === 429) {
    const found = JSON.parse(answer.text);
    return { granted: false, retryAfter: timeOf(found.retry_after_ms), key: "", fence: 0, expiresAfter: null,
      want: found.want ?? [], detail: found.detail ?? "", headers: answer.headers, raw: found };
  }
  const found = readJson(answer);
  return { granted: true, retryAfter: 0, key: found.id ?? "", fence: found.fence ?? 0,
    expiresAfter: timeOf(found.expires_in), want: found.want ?? [], detail: "", headers: answer.headers, raw: found };
}

/** The decision, or Refused. */
export function granted(decision) {
  if (!decision.granted) throw new Refused(decision.detail, { retryAfter: decision.retryAfter });
  return decision;
}

/** The parts of a limit: "10/1s,200/1m", or {size, interval, burst, zone, mode}. */
export function limitParameters(limit) {
  if (limit === undefined || limit === null) return {};
  if (typeof limit === "string") return { limits: limit };
  if (typeof limit === "number") return { size: limit };
  const { size, interval, burst, zone, mode, limits } = limit;
  return Object.fromEntries(
    Object.entries({ size, interval, burst, zone, mode, limits }).filter(([, value]) => value !== undefined),
  );
}
