//go:build linux || darwin

package election

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/await"
	"github.com/gatehousehq/gatehouse/internal/etcdtest"
)

// A process is the candidate "master" in a process of its own.
type process struct {
	cmd   *exec.Cmd
	input io.WriteCloser
	lines chan string
}

// begin starts one that ends with the test.
func begin(t *testing.T, url string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(os.Args[0]), lines: make(chan string, 1000)}
	p.cmd.Env = append(os.Environ(), urlVariable+"="+url, nameVariable+"=master")
	p.cmd.Stderr = os.Stderr
	var err error
	if p.input, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	output, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.lines)
		for lines := bufio.NewScanner(output); lines.Scan(); {
			p.lines <- lines.Text()
		}
	}()
	t.Cleanup(func() { p.kill(t) })
	return p
}

// says waits for the next line.
func (p *process) says(t *testing.T, want string) {
	t.Helper()
	select {
	case line, open := <-p.lines:
		if line != want {
			t.Fatalf("the process said %q, ended %t, want %q", line, !open, want)
		}
	case <-time.After(patience):
		t.Fatalf("the process said nothing for %v, want %q", patience, want)
	}
}

// ask lets it say whether it believes to be master.
func (p *process) ask(t *testing.T) {
	t.Helper()
	if _, err := io.WriteString(p.input, "?\n"); err != nil {
		t.Fatal(err)
	}
}

func (p *process) signal(t *testing.T, signal syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

// kill ends it at once.
func (p *process) kill(t *testing.T) {
	t.Helper()
	_ = p.cmd.Process.Kill() // it may have ended
	_ = p.cmd.Wait()         // that it was killed is no news
}

func TestMasterIsKilled(t *testing.T) {
	t.Parallel()
	const ttl = 6 * time.Second
	etcd := etcdtest.Start(t, 1)
	url := etcd.URL("/k?ttl=6s")
	master := begin(t, url)
	master.says(t, "leading true")
	b := enter(t, url, "b")
	b.follows(t, "master")
	began := time.Now()
	master.kill(t)
	took := b.leads(t).at.Sub(began)
	if took > 2*ttl {
		t.Errorf("the next led %v after the master was killed, want at most %v", took, 2*ttl)
	}
}

// A master that was stopped for longer than its time does not believe to lead when it goes on: not by the
// very first question it answers.
func TestStoppedMasterKnowsBetter(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, 1)
	url := etcd.URL("/k?ttl=5s")
	master := begin(t, url)
	master.says(t, "leading true")
	master.ask(t)
	master.says(t, "believes true")
	b := enter(t, url, "b")
	b.follows(t, "master")
	for range 2 {
		master.signal(t, syscall.SIGSTOP)
		b.leads(t)
		master.ask(t)
		master.signal(t, syscall.SIGCONT)
		first, second := <-master.lines, <-master.lines
		if first != "believes false" && (first != "leading false" || second != "believes false") {
			t.Errorf("after the stop it said %q and %q, want that it does not believe to lead", first, second)
		}
		if s, _ := b.last(); !s.Leading {
			t.Errorf("b was told %+v, want to lead on", s.MasterStatus)
		}
		b.leave(t)
		master.says(t, "leading true")
		b = enter(t, url, "b")
		b.follows(t, "master")
	}
}

// A master that was stopped for less than its time leads on.
func TestShortStop(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, 1)
	url := etcd.URL("/k?ttl=15s")
	master := begin(t, url)
	master.says(t, "leading true")
	b := enter(t, url, "b")
	b.follows(t, "master")
	master.signal(t, syscall.SIGSTOP)
	client := etcd.Client(t)
	await.True(t, "the lease has not been renewed for 3 s", func() bool {
		leases, err := client.Leases(t.Context())
		if err != nil {
			return false
		}
		for _, l := range leases.Leases {
			left, err := client.TimeToLive(t.Context(), l.ID)
			if err == nil && left.TTL > 0 && left.TTL < 9 {
				return true
			}
		}
		return false
	})
	master.signal(t, syscall.SIGCONT)
	master.ask(t)
	master.says(t, "believes true")
	if err := master.input.Close(); err != nil { // it gives the mastership back
		t.Fatal(err)
	}
	master.says(t, "leading false")
	b.leads(t)
}
