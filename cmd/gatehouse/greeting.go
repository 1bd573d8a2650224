package main

import (
	"fmt"
	"net"
)

// greetingText returns what the server prints on a terminal when it runs: where the documentation is, a first
// request to try, and what happens to the state at the end.
func greetingText(s *settings, at net.Addr) string {
	base := "http://" + localAddress(s.http, at)
	// The default store surprises: what a user has tried out is gone after a restart.
	end := "State is kept in " + withoutPassword(s.store) + "."
	if s.store == "memory" {
		end = "State is in memory only, and is lost when the server stops; --store disk:DIR keeps it."
	}
	return fmt.Sprintf("Look around:  %s/docs/\n"+
		"Try it:       curl -i '%s/v1/gcra/myapp/acquire?size=5&interval=60000'\n%s\n", base, base, end)
}

// localAddress returns the address at which a program on this machine finds the server. configured is the
// address from the settings, and at the one it listens on.
func localAddress(configured string, at net.Addr) string {
	// The host is the one of the settings, as a user knows it, and the port the one that was opened: the
	// settings may say 0 for any free port.
	host, _, _ := net.SplitHostPort(configured)
	_, port, err := net.SplitHostPort(at.String())
	if err != nil {
		return configured
	}
	// 0.0.0.0 and :: stand for all addresses of the machine, and cannot be connected to.
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port)
}
