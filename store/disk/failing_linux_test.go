package disk

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/gatehousehq/gatehouse/internal/await"
	"golang.org/x/sys/unix"
)

// childVariable is the directory of a store, in the process whose disk fails.
const childVariable = "FAILING_STORE"

// failSyncs makes every sync of this process fail from now on, as the kernel does it when a disk fails.
func failSyncs() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the number of the system call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_FDATASYNC, Jt: 2},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_FSYNC, Jt: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EIO)},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, failed := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if failed != 0 {
		return failed
	}
	return nil
}

// TestFailingChild is what the child of TestFailedSync does; on its own it does nothing.
func TestFailingChild(t *testing.T) {
	dir := os.Getenv(childVariable)
	if dir == "" {
		return
	}
	s := must(t, dir, small())
	for i := range 50 {
		d := do(t, s, lock(fmt.Sprint("lock ", i)), acquire("k"))
		fmt.Printf("told %d %d\n", i, d.Fence)
	}
	if err := failSyncs(); err != nil {
		t.Fatal(err)
	}
	for i := 50; i < 60; i++ {
		if d, err := try(s, lock(fmt.Sprint("lock ", i)), acquire("k")); err == nil {
			fmt.Printf("told %d %d\n", i, d.Fence)
		}
	}
	select {
	case <-s.Failed():
		fmt.Printf("failed %v\n", s.Err())
	case <-time.After(await.Patience):
	}
}

// When the kernel says that a sync failed, nothing is acknowledged any more, and what was is there.
func TestFailedSync(t *testing.T) {
	dir := t.TempDir()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFailingChild$")
	child.Env = append(os.Environ(), childVariable+"="+dir)
	out, err := child.CombinedOutput()
	if err != nil || strings.Count(string(out), "told ") != 50 ||
		!strings.Contains(string(out), "input/output error") {
		t.Fatalf("the child ended with %v and said\n%s\nwant 50 acknowledgements and then an error", err, out)
	}
	s := must(t, dir, small())
	for line := range strings.Lines(string(out)) {
		var i int
		var fence uint64
		if n, _ := fmt.Sscanf(line, "told %d %d", &i, &fence); n != 2 {
			continue
		}
		if got := do(t, s, lock(fmt.Sprint("lock ", i)), acquire("k")).Fence; got != fence {
			t.Errorf("lock %d is held with %d, want %d", i, got, fence)
		}
	}
	end(t, s)
}
