package main

import (
	"math"
	"os"
	"runtime/debug"
	"testing"
	"testing/fstest"

	"github.com/prometheus/client_golang/prometheus"
)

// TestMachineMemory: what a process can have is the least of what the machine has and its control groups
// allow, of both versions.
func TestMachineMemory(t *testing.T) {
	const meminfo = "MemTotal:       4028440 kB\nMemFree:         100000 kB\n"
	for _, test := range []struct {
		name  string
		files map[string]string
		want  int64
	}{
		{"nothing is known", nil, 0},
		{"a machine", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n",
		}, 4028440 << 10},
		{"a container", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "536870912\n",
		}, 512 << 20},
		{"a container without a limit", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n",
		}, 4028440 << 10},
		{"a group in a group", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/system.slice/gatehouse.service\n",
			"sys/fs/cgroup/system.slice/gatehouse.service/memory.max": "max\n",
			"sys/fs/cgroup/system.slice/memory.max":                   "1073741824\n",
		}, 1 << 30},
		{"version 1", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "5:cpu:/docker/x\n4:memory:/docker/x\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "268435456\n",
		}, 256 << 20},
		{"version 1 without a limit", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "4:memory:/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, 4028440 << 10},
	} {
		root := fstest.MapFS{}
		for name, text := range test.files {
			root[name] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := machineMemory(root); got != test.want {
			t.Errorf("%s: %d bytes, want %d", test.name, got, test.want)
		}
	}
}

// TestStateMemory: state has 40 % of the least that is known.
func TestStateMemory(t *testing.T) {
	for _, test := range []struct {
		machine, limit int64
		want           size
	}{
		{0, math.MaxInt64, 1 << 30},
		{1000, math.MaxInt64, 400},
		{1000, 500, 200},
		{0, 500, 200},
		{1000, 0, 400},
	} {
		if got := stateMemory(test.machine, test.limit); got != test.want {
			t.Errorf("of %d, and %d by GOMEMLIMIT, state has %d, want %d",
				test.machine, test.limit, got, test.want)
		}
	}
}

// What is left out of --max-memory is a part of the whole machine, not of the limit that the server gives the
// collector by itself.
func TestStateMemoryOfThisMachine(t *testing.T) {
	before := debug.SetMemoryLimit(math.MaxInt64)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	want := int64(stateMemory(machineMemory(os.DirFS("/")), math.MaxInt64))
	if got := newStateTotal(0, prometheus.NewRegistry()).Limit(); got != want {
		t.Errorf("state may take %d bytes, want %d", got, want)
	}
}

// The collector keeps the heap below 90 % of what the machine has, where GOMEMLIMIT says nothing.
func TestCollectorLimit(t *testing.T) {
	const machine, before = 1000 << 20, 5000 << 20
	unlimited := debug.SetMemoryLimit(before)
	t.Cleanup(func() { debug.SetMemoryLimit(unlimited) })
	t.Setenv("GOMEMLIMIT", "5000MiB")
	limitMemory(machine)
	if got := debug.SetMemoryLimit(-1); got != before {
		t.Errorf("with GOMEMLIMIT the heap may have %d bytes, want %d as before", got, int64(before))
	}
	if err := os.Unsetenv("GOMEMLIMIT"); err != nil { // Setenv puts it back
		t.Fatal(err)
	}
	limitMemory(0)
	if got := debug.SetMemoryLimit(-1); got != before {
		t.Errorf("on an unknown machine the heap may have %d bytes, want %d as before", got, int64(before))
	}
	limitMemory(machine)
	if got := debug.SetMemoryLimit(-1); got != machine/100*90 {
		t.Errorf("of %d bytes the heap may have %d, want 90 %%", machine, got)
	}
}
