package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/client"
	"golang.org/x/sys/unix"
)

// goClient measures what a question costs a Go program.
func goClient(ctx context.Context, b *bench) (text string, rows []row, err error) {
	s, err := b.start(ctx, b.gatehouse)
	if err != nil {
		return "", nil, err
	}
	c, err := client.New(client.Config{Addresses: []string{s.address}})
	if err != nil {
		return "", nil, err
	}
	defer c.Close()
	url := "http://" + s.address + acquirePath + "&details=true"
	// The same request by net/http alone, so that the row shows what the client adds.
	bare := func() error {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, http.NoBody)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, response.Body)
		return errors.Join(err, response.Body.Close())
	}
	key, acquire := gatehouse.Key{Kind: gatehouse.TokenBucket, Name: "bench"}, bucket()
	ours := func() error {
		d, err := c.Do(ctx, key, acquire)
		if err == nil && d.Outcome != gatehouse.Granted {
			err = fmt.Errorf("acquire: %s, want granted", d.Outcome)
		}
		return err
	}
	all, err := b.race(ownCPU(b, bare), ownCPU(b, ours))
	if err != nil {
		return "", nil, err
	}
	rows = []row{{"client.Do, against net/http", all[0], all[1], nanoseconds, budget{most: 1.3}, ""}}
	text = "One caller asks for a token again and again. The time is this program's, in user mode and in the\n" +
		"kernel, for one answer. The floor is `http.DefaultClient` with the same request, whose answer is\n" +
		"read and not understood."
	return text, rows, nil
}

// ownCPU is a measure of this process's nanoseconds of CPU for a call.
func ownCPU(b *bench, call func() error) func() (float64, error) {
	least := time.Duration(b.scale(2000, 200)) * time.Millisecond
	return func() (float64, error) {
		// Processor time, and not the clock's: what the server takes is no part of it.
		before, err := usedCPU()
		if err != nil {
			return 0, err
		}
		n := 0
		for start := time.Now(); time.Since(start) < least; n++ {
			if err := call(); err != nil {
				return 0, err
			}
		}
		after, err := usedCPU()
		return float64(after-before) / float64(n), err
	}
}

// usedCPU is the CPU time of this process so far.
func usedCPU() (time.Duration, error) {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		return 0, err
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), nil
}
