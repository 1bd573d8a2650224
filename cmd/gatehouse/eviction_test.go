package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Nodes of a store whose clocks differ make a step with every other answer, and a store that forgets may lose
// all records at once: the log has one line of each in 10 s, which says how many there were.
func TestLossesAreNotLoggedOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		l := &lossLog{log: slog.New(slog.NewTextHandler(&log, nil)), store: "redis://a"}
		for range 1000 {
			l.logClockStep(2 * time.Second)
			l.logClockStep(-2 * time.Second)
			l.logVanished("lock/a")
		}
		time.Sleep(lossInterval)
		l.logClockStep(2 * time.Second)
		l.logVanished("lock/a")
		for _, want := range []string{"steps=1\n", "steps=2000\n", "records=1\n", "records=1000\n"} {
			if strings.Count(log.String(), want) != 1 {
				t.Errorf("the log has not one line with %q:\n%.2000s", want, log.String())
			}
		}
		if n := strings.Count(log.String(), "\n"); n != 4 {
			t.Errorf("the log has %d lines, want 4", n)
		}
	})
}
