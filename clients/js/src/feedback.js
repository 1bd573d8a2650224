// What a third party's answer says of its limit, in all generations of headers.

const units = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** A length of time such as "1s", "6m0s", "20ms", or a number of seconds, in ms. */
function readDuration(text) {
  if (/^\d+(\.\d+)?$/.test(text)) return Number(text) * 1000;
  if (!/^(\d+(\.\d+)?(ms|s|m|h|d))+$/.test(text)) return undefined;
  let sum = 0;
  for (const [, number, , unit] of text.matchAll(/(\d+(\.\d+)?)(ms|s|m|h|d)/g)) sum += Number(number) * units[unit];
  return sum;
}

/** A time until something: a duration, seconds or ms since 1970, or a date. */
function readReset(text, wall) {
  const value = readDuration(text);
  if (value === undefined) {
    const date = Date.parse(text);
    return Number.isNaN(date) ? undefined : Math.max(0, date - wall);
  }
  if (value >= 1e15) return Math.max(0, value / 1000 - wall); // ms since 1970
  if (value >= 1e12) return Math.max(0, value - wall); // seconds since 1970
  return value;
}

/** The member of RateLimit with the least left: `"default";r=50;t=30`, or of older drafts `remaining=50, reset=30`. */
function readRateLimit(text) {
  let least;
  for (const member of text.split(/,(?=\s*(?:"|[\w-]+;))/)) {
    const remaining = /(?:;\s*r|remaining)=(\d+)/.exec(member)?.[1];
    const reset = /(?:;\s*t|reset)=(\d+)/.exec(member)?.[1];
    if (remaining === undefined || reset === undefined) continue;
    if (least === undefined || Number(remaining) < least.remaining) {
      least = { remaining: Number(remaining), reset: Number(reset) * 1000 };
    }
  }
  return least;
}

const pairs = [
  ["ratelimit-remaining", "ratelimit-reset"],
  ["x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"],
  ["anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"],
  ["x-ratelimit-remaining", "x-ratelimit-reset"],
  ["x-rate-limit-remaining", "x-rate-limit-reset"],
];

/** What to report of an answer: its status, and in ms retryAfter and reset, with what remains. */
export function readFeedback(status, header, wall = Date.now()) {
  const found = { status };
  const precise = header("retry-after-ms");
  const after = header("retry-after");
  if (precise && /^\d+(\.\d+)?$/.test(precise)) found.retryAfter = Number(precise);
  else if (after) found.retryAfter = /^\d+(\.\d+)?$/.test(after) ? Number(after) * 1000 : readReset(after, wall);
  let limit = header("ratelimit") ? readRateLimit(header("ratelimit")) : undefined;
  for (const [remaining, reset] of pairs) {
    if (limit !== undefined) break;
    const left = header(remaining);
    const until = header(reset) ? readReset(header(reset), wall) : undefined;
    if (left && /^\d+$/.test(left) && until !== undefined) limit = { remaining: Number(left), reset: until };
  }
  if (limit !== undefined) Object.assign(found, limit);
  // A 429 that names no time, but when something is left again.
  if (status === 429 && found.retryAfter === undefined && limit?.remaining === 0) found.retryAfter = limit.reset;
  return found;
}
