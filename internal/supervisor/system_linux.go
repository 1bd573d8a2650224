package supervisor

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// becomeSubreaper makes this process the parent of descendants whose own parent dies.
func becomeSubreaper() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// dieWithParent has the command be killed should the guard die.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// dup makes file mean the same as from.
func dup(from, file int) error { return unix.Dup3(from, file, 0) }

// A process is a descendant. It may have ended and not been waited for.
type process struct{ pid, parent, group int }

// descendants returns the descendants of this process, which must be a subreaper. It looks at all
// processes of the machine to find them. Mostly there are none: a subreaper that has no child has no
// descendant.
func descendants() []process {
	if !hasChildren() {
		return nil
	}
	all := map[int]process{}
	children := map[int][]int{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		// A process that ends meanwhile has no file, or says nothing.
		if p, ok := readProcess(pid); ok {
			all[pid] = p
			children[p.parent] = append(children[p.parent], pid)
		}
	}
	var found []process
	// Each level of the tree is appended while the level before it is read.
	queue := children[os.Getpid()]
	for i := 0; i < len(queue); i++ {
		found = append(found, all[queue[i]])
		queue = append(queue, children[queue[i]]...)
	}
	return found
}

// hasChildren is whether this process has a child, be it one that has ended and was not waited for.
func hasChildren() bool {
	const look = unix.WEXITED | unix.WNOHANG | unix.WNOWAIT | unix.WALL
	return !errors.Is(unix.Waitid(unix.P_ALL, 0, nil, look, nil), unix.ECHILD)
}

// readProcess reads the parent and the group of a process, in its /proc/PID/stat: "PID (NAME) STATE PARENT
// GROUP ...". The name may hold blanks and parentheses. It is false for one that is gone.
func readProcess(pid int) (process, bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, false
	}
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 3 {
		return process{}, false
	}
	parent, _ := strconv.Atoi(string(fields[1]))
	group, _ := strconv.Atoi(string(fields[2]))
	return process{pid, parent, group}, true
}
