// Types of gatehouse-client. All times are in milliseconds.

export type Kind =
  | "tokenbucket" | "gcra" | "fixedwindow" | "slidingwindow" | "slidinglog" | "pace"
  | "semaphore" | "lock" | "event" | "watchdog" | "counter" | "barrier";
export type LimiterKind = "tokenbucket" | "gcra" | "fixedwindow" | "slidingwindow" | "slidinglog" | "pace";

/** "10/1s,200/1m", a number per second, or the parts of a limit. */
export type Limit =
  | string
  | number
  | { size?: number; interval?: number | "day" | "week" | "month"; burst?: number; zone?: string; mode?: string; limits?: string };

export interface ErrorDetails {
  code?: string;
  status?: number;
  retryAfter?: number | null;
}

export class GatehouseError extends Error {
  constructor(detail: string, more?: ErrorDetails);
  readonly code: string;
  readonly status: number;
  readonly retryAfter: number | null;
}
export class Refused extends GatehouseError {}
export class Conflict extends GatehouseError {}
export class Deleted extends Conflict {}
export class Missing extends GatehouseError {}
export class Invalid extends GatehouseError {}
export class Unavailable extends GatehouseError {
  readonly maybeDone: boolean;
}
export class HoldLost extends GatehouseError {}

export interface Decision {
  readonly granted: boolean;
  readonly limit: number | null;
  readonly remaining: number | null;
  readonly retryAfter: number | null;
  readonly resetAfter: number | null;
  readonly delay: number | null;
  readonly key: string;
  readonly fence: number;
  readonly expiresAfter: number | null;
  readonly value: bigint | null;
  readonly message: string;
  readonly detail: string;
  readonly headers: Headers;
  readonly raw: Record<string, unknown>;
}

export interface GrantDecision {
  readonly granted: boolean;
  readonly retryAfter: number | null;
  readonly key: string;
  readonly fence: number;
  readonly expiresAfter: number | null;
  readonly want: Record<string, unknown>[];
  readonly detail: string;
  readonly headers: Headers;
  readonly raw: Record<string, unknown>;
}

export interface ClientOptions {
  timeout?: number;
  owner?: string;
  host?: string;
  purpose?: string;
  fetch?: typeof fetch;
  /** Certificates that are not the system's, in Node. Without a scheme, an address is then one of https. */
  tls?: { ca?: string | Uint8Array; cert?: string | Uint8Array; key?: string | Uint8Array };
  /** Says to servers with users who asks. Without it, that of the environment variable GATEHOUSE_TOKEN does. */
  token?: string;
}

export interface Waiting {
  position: number;
  waiting_for: number;
  expected_wait: number | null;
  expected_wait_90: number | null;
  [member: string]: unknown;
}

export interface AcquireOptions {
  /** Without limit when absent; 0 is not at all. */
  maxWait?: number;
  signal?: AbortSignal;
  onWaiting?: (waiting: Waiting) => void;
}

export interface HoldOptions extends AcquireOptions {
  expires?: number;
  key?: string;
  cost?: number;
}

export interface GrantOptions extends AcquireOptions {
  expires?: number;
  id?: string;
  overrun?: "debt" | "cap";
  onExpiry?: "estimate" | "zero" | "last";
}

export interface ReserveOptions extends GrantOptions {
  clip?: boolean;
}

export interface WaitOptions {
  maxWait?: number;
  signal?: AbortSignal;
}

export class Hold {
  readonly key: string;
  readonly fence: number;
  readonly signal: AbortSignal;
  readonly lost: boolean;
  readonly remaining: number;
  readonly decision: Decision | GrantDecision;
  check(): void;
  release(costs?: Record<string, number>): Promise<boolean>;
  /** There where JavaScript has it. */
  [Symbol.asyncDispose](): Promise<void>;
}

export class Grant extends Hold {
  readonly id: string;
  readonly want: Record<string, unknown>[];
  settle(costs: Record<string, number>): Promise<GrantDecision>;
  topUp(costs: Record<string, number>, how?: { maxWait?: number }): Promise<GrantDecision>;
}

export class Reservation extends Hold {
  readonly id: string;
  readonly want: Record<string, unknown>[];
  settle(spent: number): Promise<GrantDecision>;
  topUp(more: number, how?: { maxWait?: number }): Promise<GrantDecision>;
}

export class Guard<H extends Hold = Hold> {
  acquire(how?: AcquireOptions): Promise<H>;
  tryAcquire(how?: AcquireOptions): Promise<H | null>;
  run<T>(work: (hold: H) => T | Promise<T>, how?: AcquireOptions): Promise<T>;
}

export interface Feedback {
  retryAfter?: number;
  remaining?: number;
  reset?: number;
}

export class Limiter {
  readonly kind: LimiterKind;
  readonly name: string;
  acquire(cost?: number, how?: WaitOptions): Promise<Decision>;
  wait(n?: number, how?: WaitOptions): Promise<void>;
  tryAcquire(cost?: number, how?: { timeout?: number; signal?: AbortSignal }): Promise<Decision>;
  peek(cost?: number): Promise<Decision>;
  delay(cost?: number): Promise<number | null>;
  reserve(cost?: number, key?: string): Promise<number>;
  cancel(key: string): Promise<void>;
  refund(cost?: number): Promise<Decision>;
  charge(cost?: number): Promise<Decision>;
  reset(): Promise<void>;
  feedback(status: number, found?: Feedback): Promise<void>;
}

export class Event {
  readonly name: string;
  send(message?: string): Promise<void>;
  wait(how?: WaitOptions): Promise<string>;
}

export class Barrier {
  readonly name: string;
  readonly size: number;
  wait(how?: WaitOptions): Promise<void>;
}

export class Counter {
  readonly name: string;
  count(amount?: number | bigint): Promise<bigint>;
  value(): Promise<bigint>;
  reset(value?: number | bigint): Promise<void>;
}

export class Watchdog {
  readonly name: string;
  readonly expires: number;
  kick(expires?: number, how?: { timeout?: number; signal?: AbortSignal }): Promise<void>;
  wait(how?: WaitOptions): Promise<void>;
  run<T>(work: () => T | Promise<T>): Promise<T>;
}

export class Resource {
  readonly name: string;
  readonly capacity: number;
  readonly leased: boolean;
  want(wants: number): void;
  ready(how?: { signal?: AbortSignal }): Promise<void>;
  wait(n?: number, how?: WaitOptions): Promise<void>;
  release(): Promise<void>;
}

export class Capacity {
  resource(name: string, wants: number, options?: { priority?: number }): Resource;
  close(): Promise<void>;
  /** There where JavaScript has it. */
  [Symbol.asyncDispose](): Promise<void>;
}

export class Client {
  constructor(addresses?: string | string[], options?: ClientOptions);
  do(kind: Kind, name: string, op: string, parameters?: Record<string, unknown>,
    how?: { timeout?: number; signal?: AbortSignal }): Promise<Decision>;
  doGrant(body: Record<string, unknown>, how?: { signal?: AbortSignal }): Promise<GrantDecision>;
  callGrant(id: string, op: string, body?: Record<string, unknown>): Promise<GrantDecision>;
  batch(commands: Record<string, unknown>[]): Promise<Record<string, unknown>[]>;
  stats(kind: Kind, name: string): Promise<Record<string, unknown>>;
  holders(kind: "semaphore" | "lock", name: string): Promise<Record<string, unknown>[]>;
  waiters(kind: Kind, name: string): Promise<Record<string, unknown>[]>;
  delete(kind: Kind, name: string): Promise<boolean>;
  semaphore(name: string, size?: number, options?: HoldOptions): Guard;
  lock(name: string, options?: HoldOptions): Guard;
  grant(want: Record<string, unknown>[], options?: GrantOptions): Guard<Grant>;
  limiter(name: string, limit?: Limit, how?: { kind?: LimiterKind }): Limiter;
  budget(name: string, limit?: Limit, how?: { kind?: LimiterKind }): {
    reserve(estimate: number, options?: ReserveOptions): Promise<Reservation>;
  };
  event(name: string): Event;
  barrier(name: string, size?: number): Barrier;
  watchdog(name: string, expires?: number): Watchdog;
  counter(name: string): Counter;
  capacity(options?: { id?: string; onError?: (error: GatehouseError) => void }): Capacity;
}

export interface LimitOptions<R> {
  /** Under which name a request counts; null is not limited. */
  name: (request: R) => string | null | undefined | Promise<string | null | undefined>;
  limits?: Limit;
  kind?: LimiterKind;
  cost?: (request: R) => number | Promise<number>;
  /** How many ms a decision may take, 250 when absent. */
  budget?: number;
  /** Whether a request goes on when there was no decision; true when absent. */
  failOpen?: boolean;
  onError?: (error: GatehouseError) => void;
}

// eslint-disable-next-line @typescript-eslint/no-explicit-any -- Express' own types are not needed to use it
export function expressLimit(client: Client, options: LimitOptions<any>):
  (request: any, response: any, next: (error?: unknown) => void) => void;
export function fetchLimit(client: Client, options: LimitOptions<Request>):
  <A extends unknown[]>(handler: (request: Request, ...more: A) => Response | Promise<Response>) =>
    (request: Request, ...more: A) => Promise<Response>;

export interface LimitedFetchOptions {
  fetch?: typeof fetch;
  maxWait?: number;
  failOpen?: boolean;
  onError?: (error: GatehouseError) => void;
}

export function limitedFetch(
  limiter: Limiter | ((input: RequestInfo | URL, init?: RequestInit) => Limiter | null),
  options?: LimitedFetchOptions,
): typeof fetch;

export function readFeedback(status: number, header: (name: string) => string | null, wall?: number):
  Feedback & { status: number };
