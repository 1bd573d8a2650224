// Until when something is held, by the clock of the holder alone.

const longestBeat = 5000;

/**
 * The term of a hold. The server counts a term from when it got the request. The holder counts it from before that
 * was sent, on the monotonic clock, and a tenth less, at most a second. One that lasts Infinity has no end.
 */
export class Term {
  constructor(sentAt, lasts) {
    this.start(sentAt, lasts);
  }

  /** Begin anew, by a request that was sent at that time. */
  start(sentAt, lasts) {
    this.began = sentAt;
    this.lasts = lasts ?? Infinity;
  }

  /** From when on it must be taken for lost. */
  get ends() {
    return this.lasts === Infinity ? Infinity : this.began + this.lasts - 1 - Math.min(this.lasts / 10, 1000);
  }

  /** When the next renewal is due: after a third, so that one may fail. */
  get renewAt() {
    return this.began + this.lasts / 3;
  }

  /** How long one beat may take, at all addresses together. */
  get patience() {
    return Math.min(longestBeat, this.lasts / 3);
  }

  /** How long a beat that begins at an instant may take: no longer than the term lasts. */
  patienceAt(at) {
    return Math.max(1, Math.min(this.patience, this.ends - at));
  }

  /** How long to wait after a renewal that failed. */
  get pause() {
    return Math.min(1000, this.lasts / 30);
  }
}
