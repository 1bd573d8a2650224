package main

import (
	"os"
	"runtime"
)

// minProcessors is how many goroutines at least run at once, so that a few that compute for long leave one
// for the network: a list, a page, a scrape and the collector of memory may all be at work.
const minProcessors = 4

// useProcessors lets the system share fewer processors among minProcessors threads, unless GOMAXPROCS says
// how many there are to be.
func useProcessors() {
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) < minProcessors {
		runtime.GOMAXPROCS(minProcessors)
	}
}
