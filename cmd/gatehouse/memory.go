package main

import (
	"bytes"
	"io/fs"
	"math"
	"os"
	"path"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/gatehousehq/gatehouse/internal/budget"
	"github.com/gatehousehq/gatehouse/internal/telemetry"
	"github.com/gatehousehq/gatehouse/internal/weight"
	"github.com/prometheus/client_golang/prometheus"
)

// How memory is shared out. The heap may grow to twice what is in use before it is collected, so that state
// may take 40 % of the machine's memory. unknownMemory is what a small machine has.
const (
	statePercent     = 40
	collectorPercent = 90
	unknownMemory    = size(1 << 30)
)

// limitMemory makes the garbage collector keep the heap below the memory of the machine or the container,
// unless GOMEMLIMIT is set.
func limitMemory(machine int64) {
	if _, given := os.LookupEnv("GOMEMLIMIT"); !given && machine > 0 {
		debug.SetMemoryLimit(machine / 100 * collectorPercent)
	}
}

// newStateTotal returns the count of all state's memory with its limit: most, or a part of the machine's
// memory if most is 0. It registers both as metrics, and limits the heap.
func newStateTotal(most size, metrics *prometheus.Registry) *weight.Total {
	machine := machineMemory(os.DirFS("/"))
	if most == 0 {
		// -1 only reads the limit. Before limitMemory it is that of GOMEMLIMIT.
		most = stateMemory(machine, debug.SetMemoryLimit(-1))
	}
	// Only after the limit of GOMEMLIMIT was read, which this call would replace.
	limitMemory(machine)
	t := weight.New(int64(most))
	telemetry.Gauge(metrics, "gatehouse_state_bytes",
		"Estimated memory of the state of controllers and of leases on capacity.", t.Used)
	telemetry.Gauge(metrics, "gatehouse_state_max_bytes",
		"Limit of the memory of state, set by --max-memory.", t.Limit)
	return t
}

// newBudget returns the budget of buffered bytes that all listeners share, and registers its metrics.
func newBudget(most size, metrics *prometheus.Registry) *budget.Budget {
	b := budget.New(int64(most))
	telemetry.Gauge(metrics, "gatehouse_buffered_bytes",
		"Bytes in memory that wait to be sent or were received in part, over all listeners.", b.Used)
	telemetry.Gauge(metrics, "gatehouse_buffered_max_bytes",
		"Limit of buffered bytes, set by --max-buffered.", b.Most)
	telemetry.Counter(metrics, "gatehouse_buffered_refusals_total",
		"Requests refused and connections closed because too many bytes were buffered.", b.Refused)
	return b
}

// stateMemory returns how much memory state may take, in bytes, given the memory of the machine and the limit
// of GOMEMLIMIT. 0 and math.MaxInt64 stand for unknown and without a limit.
func stateMemory(machine, limit int64) size {
	least := leastLimit(machine, limit)
	// Neither is known. A small guess may refuse names, but a large one may get the process killed.
	if least == 0 || least == math.MaxInt64 {
		return unknownMemory
	}
	return size(least / 100 * statePercent) // divided first, as the product may overflow
}

// leastLimit returns the lowest of several limits, of which 0 is none.
func leastLimit(limits ...int64) (least int64) {
	for _, limit := range limits {
		if limit > 0 && (least == 0 || limit < least) {
			least = limit
		}
	}
	return least
}

// machineMemory returns how much memory this process can have, in bytes: that of the machine, or the lowest
// limit of the control groups that the process is in. It returns 0 when that is not known. root is the file
// system.
func machineMemory(root fs.FS) int64 {
	least := totalMemory(root)
	// A line for each hierarchy of groups: ID:CONTROLLERS:PATH. Version 2 has one hierarchy, with ID 0 and no
	// controllers. A machine may have both versions.
	groups, _ := fs.ReadFile(root, "proc/self/cgroup")
	for line := range strings.Lines(string(groups)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) < 3 {
			continue
		}
		switch {
		case parts[0] == "0": // version 2
			least = leastLimit(least, groupMemory(root, "sys/fs/cgroup", parts[2], "memory.max"))
		case parts[1] == "memory":
			group := groupMemory(root, "sys/fs/cgroup/memory", parts[2], "memory.limit_in_bytes")
			least = leastLimit(least, group)
		}
	}
	return least
}

// totalMemory returns the memory of the machine by /proc/meminfo, in bytes; 0 when it cannot be read.
func totalMemory(root fs.FS) int64 {
	text, _ := fs.ReadFile(root, "proc/meminfo")
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) == 3 && words[0] == "MemTotal:" {
			kib, _ := strconv.ParseInt(words[1], 10, 64)
			// The file writes kB, and means units of 1024 bytes.
			return kib << 10
		}
	}
	return 0
}

// groupMemory returns the lowest limit of a control group and of the groups around it, 0 without one.
func groupMemory(root fs.FS, folder, group, file string) int64 {
	least := int64(0)
	// In a container the file system begins at the container's group, whose path is another one outside. So
	// folders that do not exist are passed over, and the last one is the root, which is that group there.
	for group = path.Join("/", group); ; group = path.Dir(group) {
		text, _ := fs.ReadFile(root, path.Join(folder, group, file))
		n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
		if err == nil { // "max" is no number
			least = leastLimit(least, n)
		}
		if group == "/" {
			return least
		}
	}
}

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
