// What stands before handlers of requests, and before calls of somebody else's API.

import { GatehouseError } from "./errors.js";
import { readFeedback } from "./feedback.js";

/** The decision about one request, as a refusal to send or headers to add. */
async function judge(client, options, request) {
  const { kind = "gcra", limits, name, cost = () => 1, budget = 250, failOpen = true } = options;
  const key = await name(request);
  if (key === null || key === undefined) return { headers: {} }; // not limited
  try {
    const decision = await client.limiter(key, limits, { kind }).tryAcquire(await cost(request), { timeout: budget });
    const headers = {};
    for (const header of ["RateLimit", "RateLimit-Policy"]) {
      const value = decision.headers.get(header);
      if (value) headers[header] = value;
    }
    if (!decision.granted && decision.retryAfter !== null) {
      headers["Retry-After"] = String(Math.ceil(decision.retryAfter / 1000));
    }
    return decision.granted ? { headers } : { headers, refusal: problem(429, "Too Many Requests", "refused", decision) };
  } catch (error) {
    if (!(error instanceof GatehouseError)) throw error;
    options.onError?.(error);
    if (failOpen) return { headers: {} };
    return { headers: { "Retry-After": "1" }, refusal: problem(503, "Service Unavailable", "unavailable", {}) };
  }
}

function problem(status, title, code, { retryAfter }) {
  const body = { type: "about:blank", title, status, code };
  if (status === 429) body.type = "https://iana.org/assignments/http-problem-types#quota-exceeded";
  if (retryAfter) body.retry_after_ms = retryAfter;
  return { status, body: JSON.stringify(body) };
}

/** Middleware for Express, Connect and their like: 429 with a problem, or on with RateLimit headers. */
export function expressLimit(client, options) {
  return (request, response, next) => {
    judge(client, options, request).then(({ headers, refusal }) => {
      for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
      if (refusal === undefined) return next();
      response.statusCode = refusal.status;
      response.setHeader("Content-Type", "application/problem+json");
      response.end(refusal.body);
    }, next);
  };
}

/** The same for handlers that turn a Request into a Response. */
export function fetchLimit(client, options) {
  return (handler) =>
    async (request, ...more) => {
      const { headers, refusal } = await judge(client, options, request);
      if (refusal !== undefined) {
        const { status, body } = refusal;
        return new Response(body, { status, headers: { ...headers, "Content-Type": "application/problem+json" } });
      }
      const response = await handler(request, ...more);
      const changed = new Response(response.body, response); // that of a fetch cannot be changed
      for (const [name, value] of Object.entries(headers)) changed.headers.set(name, value);
      return changed;
    };
}

/**
 * A fetch that waits for a shared limit before somebody else's API is called, and reports what that answers: one
 * 429 pauses every process. `limiter` is a Limiter, or a function of the request that returns one, or null for none.
 */
export function limitedFetch(limiter, { fetch = globalThis.fetch, maxWait, failOpen = false, onError } = {}) {
  const reported = new WeakMap(); // of each limiter, when a success was reported, and whether a failure was since
  const choose = typeof limiter === "function" ? limiter : () => limiter;
  const tolerate = (error) => {
    if (!(error instanceof GatehouseError)) throw error;
    onError?.(error);
  };
  return async (input, init) => {
    const chosen = choose(input, init);
    if (!chosen) return fetch(input, init);
    const signal = init?.signal ?? (typeof input === "object" ? input.signal : undefined);
    try {
      await chosen.acquire(1, { maxWait, signal });
    } catch (error) {
      if (!failOpen || error?.code === "refused") throw error;
      tolerate(error);
    }
    const response = await fetch(input, init);
    const found = readFeedback(response.status, (name) => response.headers.get(name));
    if (worthReporting(reported, chosen, found)) {
      await chosen.feedback(found.status, found).catch(tolerate);
    }
    return response;
  };
}

/** Every 429 and 503 with a time, the first success behind one, and else one success in 10 s. */
function worthReporting(reported, limiter, found) {
  const known = reported.get(limiter) ?? { at: -Infinity, failed: false };
  const failed = found.status === 429 || (found.status === 503 && found.retryAfter !== undefined);
  const due = failed || (found.status < 500 && (known.failed || performance.now() - known.at > 10_000));
  if (due) reported.set(limiter, { at: performance.now(), failed });
  return due;
}
