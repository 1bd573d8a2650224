package main

import (
	"bytes"
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/gatehousehq/gatehouse/internal/weight"
	"github.com/prometheus/client_golang/prometheus"
)

// What memory is used for. Go's heap may be twice what is in use before it is collected, so that state may
// have 40 % of what there is. Unknown is as much as small machines have.
const (
	statePercent     = 40
	collectorPercent = 90
	unknownMemory    = size(1 << 30)
)

// limitMemory has the collector keep the heap below what the machine or the container has, unless GOMEMLIMIT
// says otherwise.
func limitMemory(machine int64) {
	if _, given := os.LookupEnv("GOMEMLIMIT"); !given && machine > 0 {
		debug.SetMemoryLimit(machine / 100 * collectorPercent)
	}
}

// newTotal returns what all state weighs together and may weigh: most, or a part of what the machine has if
// that is 0. It shows both in the metrics, and limits the heap.
func newTotal(most size, figures *prometheus.Registry) *weight.Total {
	machine := machineMemory(os.DirFS("/"))
	if most == 0 {
		most = stateMemory(machine, debug.SetMemoryLimit(-1)) // which is that of GOMEMLIMIT so far
	}
	limitMemory(machine)
	t := weight.New(int64(most))
	figures.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "gatehouse_state_bytes",
			Help: "What the state of controllers and the leases on capacity take in memory, by estimate.",
		}, func() float64 { return float64(t.Used()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "gatehouse_state_max_bytes",
			Help: "Most bytes that state may take, by --max-memory.",
		}, func() float64 { return float64(t.Limit()) }))
	return t
}

// stateMemory is how much state may take of what the machine has and of what GOMEMLIMIT says. 0 and
// math.MaxInt64 stand for unknown and without a limit.
func stateMemory(machine, limit int64) size {
	least := int64(math.MaxInt64)
	for _, n := range []int64{machine, limit} {
		if n > 0 {
			least = min(least, n)
		}
	}
	if least == math.MaxInt64 {
		return unknownMemory
	}
	return size(least / 100 * statePercent)
}

// machineMemory is how much memory this process can have, in bytes: what the machine has, or the least limit
// of the control groups that the process is in. It is 0 when that is not known. root is the file system.
func machineMemory(root fs.FS) int64 {
	least := int64(math.MaxInt64)
	note := func(n int64) {
		if n > 0 {
			least = min(least, n)
		}
	}
	note(totalMemory(root))
	groups, _ := fs.ReadFile(root, "proc/self/cgroup")
	for line := range strings.Lines(string(groups)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) < 3 {
			continue
		}
		switch {
		case parts[0] == "0": // version 2
			note(groupMemory(root, "sys/fs/cgroup", parts[2], "memory.max"))
		case parts[1] == "memory":
			note(groupMemory(root, "sys/fs/cgroup/memory", parts[2], "memory.limit_in_bytes"))
		}
	}
	if least == math.MaxInt64 {
		return 0
	}
	return least
}

// totalMemory is what the machine has by /proc/meminfo.
func totalMemory(root fs.FS) int64 {
	text, _ := fs.ReadFile(root, "proc/meminfo")
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) == 3 && words[0] == "MemTotal:" {
			kib, _ := strconv.ParseInt(words[1], 10, 64)
			return kib << 10
		}
	}
	return 0
}

// groupMemory is the least limit of a control group and those it is in, 0 without one. In a container the
// file system begins at the container's group, whose path is another outside.
func groupMemory(root fs.FS, folder, group, file string) int64 {
	least := int64(0)
	for group = path.Join("/", group); ; group = path.Dir(group) {
		text, _ := fs.ReadFile(root, path.Join(folder, group, file))
		n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
		if err == nil && n > 0 && (least == 0 || n < least) { // "max" is no number
			least = n
		}
		if group == "/" {
			return least
		}
	}
}
