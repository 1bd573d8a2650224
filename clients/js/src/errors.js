// What can go wrong, by the codes of the server.

/** The base of all errors. `code` is one word that does not change, `retryAfter` is in ms or null. */
export class GatehouseError extends Error {
  constructor(detail, { code = "internal", status = 0, retryAfter = null } = {}) {
    super(detail);
    this.name = new.target.name;
    this.code = code;
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

/** Not now, or not within the time that the caller would wait. */
export class Refused extends GatehouseError {
  constructor(detail, more) {
    super(detail, { code: "refused", ...more });
  }
}

/** The state does not allow it, such as a release of what is not held. */
export class Conflict extends GatehouseError {
  constructor(detail, more) {
    super(detail, { code: "conflict", ...more });
  }
}

/** The name was deleted while the request waited. */
export class Deleted extends Conflict {
  constructor(detail, more) {
    super(detail, { code: "deleted", ...more });
  }
}

/** There is no such name. */
export class Missing extends GatehouseError {
  constructor(detail, more) {
    super(detail, { code: "missing", ...more });
  }
}

/** The request makes no sense, now or later. */
export class Invalid extends GatehouseError {
  constructor(detail, more) {
    super(detail, { code: "invalid", ...more });
  }
}

/** No server answered, or none could decide. `maybeDone` is true where it may have taken effect. */
export class Unavailable extends GatehouseError {
  constructor(detail, { maybeDone = false, ...more } = {}) {
    super(detail, { code: "unavailable", ...more });
    this.maybeDone = maybeDone;
  }
}

/** What was held is held no more, or will not be in a moment: stop working. */
export class HoldLost extends GatehouseError {
  constructor(detail) {
    super(detail, { code: "lost" });
  }
}

const byCode = {
  refused: Refused,
  conflict: Conflict,
  deleted: Deleted,
  missing: Missing,
  invalid: Invalid,
  exhausted: Unavailable,
  unavailable: Unavailable,
  timeout: Unavailable,
};

/** The error of a code. */
export function errorFor(code, detail, status, retryAfter = null) {
  const Kind = byCode[code] ?? GatehouseError;
  return new Kind(detail, { code, status, retryAfter, maybeDone: code === "unavailable" || code === "timeout" });
}
