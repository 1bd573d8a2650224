package main

import (
	"fmt"
	"net"
)

// greeting is what a person at a terminal is told when the server runs: where to click, what to try, and what
// becomes of it all at the end.
func greeting(s *settings, at net.Addr) string {
	base := "http://" + reachable(s.http, at)
	end := "All is kept in " + withoutPassword(s.store) + "."
	if s.store == "memory" {
		end = "All is kept in memory, and forgotten when the server ends; --store disk:DIR keeps it."
	}
	return fmt.Sprintf("Look around:  %s/docs/\n"+
		"Try it:       curl -i '%s/v1/gcra/myapp/acquire?size=5&interval=60000'\n%s\n", base, base, end)
}

// reachable is the address at which a program on this machine finds a server that was told to listen at one.
func reachable(told string, at net.Addr) string {
	host, _, _ := net.SplitHostPort(told)
	_, port, err := net.SplitHostPort(at.String())
	if err != nil {
		return told
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port)
}
