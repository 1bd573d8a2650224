package election

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// The test binary is also the program that the tests kill and stop, when it finds these.
const (
	urlVariable  = "TESTED_ELECTION"
	nameVariable = "TESTED_CANDIDATE"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(urlVariable); url != "" {
		os.Exit(beCandidate(url, os.Getenv(nameVariable)))
	}
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		_ = flag.Set("test.parallel", "6") // most tests only wait
	}
	goleak.VerifyTestMain(m)
}

// beCandidate takes part until its input ends. It prints each change between master and not, and for each
// line it reads whether it believes to be master at that instant.
func beCandidate(url, name string) int {
	e, err := Open(url)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	var mu sync.Mutex
	var last MasterStatus
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- e.Run(ctx, name, func(s MasterStatus) {
			mu.Lock()
			defer mu.Unlock()
			if s.Leading != last.Leading {
				fmt.Printf("leading %t\n", s.Leading)
			}
			last = s
		})
	}()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		mu.Lock()
		fmt.Printf("believes %t\n", last.Leading && time.Now().Before(last.Until))
		mu.Unlock()
	}
	cancel()
	if err := <-done; err != nil {
		fmt.Println(err)
		return 1
	}
	_ = e.Close()
	return 0
}
