// Package gatehouse is the vocabulary of one question asked by many processes:
// may I go now, and if not, when?
//
// A [Command] is put to the controller named by a [Key] and comes back as a [Decision]. Whatever
// answers is a [Gate]: one in this process, one behind a network, all with the same promises.
//
// The packages below build on these words and on nothing else here: control holds the controllers
// (token bucket, semaphore, lock, event, watchdog, counter, barrier) as plain values, gate holds the
// lines of those who wait, store/memory keeps the values, front/bouncer speaks HTTP.
package gatehouse
