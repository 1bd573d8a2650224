// Package sim is the simulation of a fleet: servers with everything they are made of, on a shared store in
// which everything goes wrong, with clients that use all kinds of controllers, in virtual time. Beside it,
// from the same seed, servers and clients of capacity leases go through crashes and elections.
//
// It is all tests. What happens is written down, and oracles look through that: docs/testing.md says what
// they want, and how to play a seed again.
package sim
