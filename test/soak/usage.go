//go:build linux

package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// A cpuUsage is what the time of all cores went into since the machine started, in ticks.
type cpuUsage struct {
	all   int64
	steal int64 // the host of a virtual machine took it
	busy  int64 // programs, and what the system did for them
	ours  int64 // our programs
}

// readUsage reads what the time went into. It is 0 where the system does not tell.
func readUsage(ours []int) (u cpuUsage) {
	text, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(text), "\n")
	// The fields are user, nice, system, idle, iowait, irq, softirq, steal, guest and guest_nice.
	for i, field := range strings.Fields(strings.TrimPrefix(line, "cpu ")) {
		n, _ := strconv.ParseInt(field, 10, 64)
		switch {
		case i < 3: // user, nice, system
			u.busy += n
		case i == 7:
			u.steal = n
		case i > 7: // guests, which are part of user and nice
			continue
		}
		u.all += n
	}
	for _, pid := range ours {
		u.ours += processTicks(pid)
	}
	return u
}

// processTicks is how much time a process had.
func processTicks(pid int) (sum int64) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(text), ") ") // the name may have spaces in it
	if fields := strings.Fields(rest); len(fields) > 12 {
		for _, field := range fields[11:13] { // in user mode, and in the kernel
			n, _ := strconv.ParseInt(field, 10, 64)
			sum += n
		}
	}
	return sum
}

// shareOfOthers is the share of the time since u that neither we had nor was left over.
func (u cpuUsage) shareOfOthers(now cpuUsage) float64 {
	all := max(now.all-u.all, 1)
	others := max((now.busy-u.busy)-(now.ours-u.ours), 0)
	return float64(now.steal-u.steal+others) / float64(all)
}
