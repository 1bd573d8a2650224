package main

import (
	"testing"
	"time"
)

// The time between the request and the start of the command is part of the term.
func TestRenewalIsCountedFromTheRequest(t *testing.T) {
	t.Parallel()
	l := &runLease{term: 6 * time.Second}
	l.begin(10 * time.Second)
	if got, want := l.untilRenewal(11500*time.Millisecond), 500*time.Millisecond; got != want {
		t.Errorf("1.5 s after the request the renewal is due in %s, want %s: a third of the term", got, want)
	}
}
