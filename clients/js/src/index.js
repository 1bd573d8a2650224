// Gatehouse for JavaScript: limits, semaphores, locks, events and budgets that many processes share.

export { Capacity, Resource } from "./capacity.js";
export { Barrier, Client, Counter, Event, Limiter, Watchdog } from "./client.js";
export {
  Conflict, Deleted, GatehouseError, HoldLost, Invalid, Missing, Refused, Unavailable,
} from "./errors.js";
export { Grant, Guard, Hold, Reservation } from "./hold.js";
export { expressLimit, fetchLimit, limitedFetch } from "./middleware.js";
export { readFeedback } from "./feedback.js";
