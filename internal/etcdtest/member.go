//go:build linux || darwin

package etcdtest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// readyMessage is what a member logs once it can be asked.
const readyMessage = "ready to serve client requests"

// A member is one etcd process, or what it left.
type member struct {
	name           string
	client, peer   string // host:port
	folder, binary string
	cluster        string // all members, as etcd wants them

	process *os.Process
	exited  chan struct{} // closed once it has ended
	log     *memberLog
}

// startProcess starts the process, with the data that are there.
func (m *member) startProcess() error {
	m.exited, m.log = make(chan struct{}), &memberLog{ready: make(chan struct{})}
	cmd := exec.Command(m.binary,
		"--name="+m.name, "--data-dir="+m.folder,
		"--listen-client-urls=http://"+m.client, "--advertise-client-urls=http://"+m.client,
		"--listen-peer-urls=http://"+m.peer, "--initial-advertise-peer-urls=http://"+m.peer,
		"--initial-cluster="+m.cluster, "--initial-cluster-state=new", "--initial-cluster-token="+m.cluster,
		// On a machine that is busy with tests, no process answers within a few milliseconds. An election
		// timeout of 500 ms still allows leases of 1 s.
		"--heartbeat-interval=50", "--election-timeout=500",
		"--unsafe-no-fsync", // what is written survives the process, and that is all that dies here
	)
	cmd.Stdout, cmd.Stderr = m.log, m.log
	cmd.SysProcAttr = endWithParent()
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // endWithParent means this thread
		defer runtime.UnlockOSThread()
		defer close(m.exited)
		err := cmd.Start()
		m.process = cmd.Process
		started <- err
		if err == nil {
			_ = cmd.Wait() // that it was killed is no news
		}
	}()
	return <-started
}

func (m *member) sendSignal(signal syscall.Signal) {
	_ = m.process.Signal(signal) // it may have ended
}

func (m *member) isRunning() bool {
	select {
	case <-m.exited:
		return false
	default:
		return true
	}
}

// killProcess ends the process, and returns when it is gone.
func (m *member) killProcess() {
	m.sendSignal(syscall.SIGKILL)
	<-m.exited
}

// maxMemberLog is the most of a member's log that is kept.
const maxMemberLog = 64 << 10

// A memberLog keeps the end of what a member logs, and closes ready when it says that it is.
type memberLog struct {
	ready chan struct{}

	mu   sync.Mutex
	text []byte
	said bool
}

// Write takes what the member says.
func (j *memberLog) Write(text []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.text = append(j.text, text...)
	// A write may have a part of the message only, so that all text is searched until it was found.
	if !j.said && bytes.Contains(j.text, []byte(readyMessage)) {
		j.said = true
		close(j.ready)
	}
	if over := len(j.text) - maxMemberLog; over > 0 && j.said {
		j.text = append(j.text[:0], j.text[over:]...)
	}
	return len(text), nil
}

// String is the end of it.
func (j *memberLog) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return fmt.Sprintf("… %s", j.text[max(0, len(j.text)-2000):])
}
