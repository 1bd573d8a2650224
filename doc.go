// Package gatehouse is the vocabulary of one question asked by many processes:
// may I go now, and if not, when?
//
// A [Command] is put to the controller named by a [Key] and comes back as a [Decision]. Whatever
// answers is a [Gate]: one in this process, one behind a network, all with the same promises.
//
// The packages below build on these words. Package control holds the controllers as plain values: the
// limiters tokenbucket, gcra, fixedwindow, slidingwindow, slidinglog and pace, and semaphore, lock, event,
// watchdog, counter and barrier. A grant is one decision over several of them. Package gate holds the lines
// of waiting commands, the packages in store keep the values in memory, on disk, in Redis or in etcd, and
// those in front speak HTTP, RESP and JARL's protocol. The page docs/architecture.md says how they fit
// together.
package gatehouse
