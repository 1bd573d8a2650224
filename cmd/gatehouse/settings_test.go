package main

import (
	"slices"
	"testing"
)

// The server's own names are those it is given, and the hosts where it listens and where others find it.
func TestOwnHosts(t *testing.T) {
	for _, c := range []struct {
		http, advertise string
		hosts, want     []string
	}{
		{"localhost:5505", "", nil, []string{"localhost"}},
		{":5505", "", nil, nil},
		{"gate.example:5505", "gate-1.example:5506", []string{"a.example"},
			[]string{"a.example", "gate.example", "gate-1.example"}},
	} {
		s := settings{http: c.http, hosts: c.hosts}
		s.capacity.advertise = c.advertise
		if got := s.ownHosts(); !slices.Equal(got, c.want) {
			t.Errorf("with --http %s, --advertise %q and --hosts %v its names are %v, want %v",
				c.http, c.advertise, c.hosts, got, c.want)
		}
	}
}

// One address may have a quarter of the connections, but not so few that a small server is of no use to a
// single client.
func TestConnsPerAddress(t *testing.T) {
	for _, c := range []struct{ all, given, want int }{{20_000, 0, 5000}, {100, 0, 100}, {20_000, 7, 7}} {
		s := settings{maxConns: c.all, maxConnsPerAddress: c.given}
		if got := s.connsPerAddress(); got != c.want {
			t.Errorf("of %d connections one address may have %d, where %d is given, want %d",
				c.all, got, c.given, c.want)
		}
	}
}
