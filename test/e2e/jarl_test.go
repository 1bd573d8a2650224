package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startJARL starts gatehouse jarl at a free port. At the end of the test it must stop without complaint.
func startJARL(t *testing.T, flags ...string) *server {
	t.Helper()
	return startProcess(t, binary(), jarlFlags(freePort(t), flags...)...)
}

// binary is the program that is tested.
func binary() string { return os.Getenv(binaryVariable) }

// jarlFlags are the arguments of a listener of three a second, and more, at this port.
func jarlFlags(port string, more ...string) []string {
	flags := []string{"jarl", "--service", "api", "--ip", "127.0.0.1", "--port", port}
	for name, value := range map[string]string{"--requests": "3", "--period": "1"} {
		if !strings.Contains(strings.Join(more, " "), name) {
			flags = append(flags, name, value)
		}
	}
	return append(flags, more...)
}

// startProcess starts a program that listens for JARL's clients, and waits until it says where.
func startProcess(t *testing.T, program string, args ...string) *server {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, args...)
	pipe, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &server{process: cmd.Process, journal: newJournal(), ended: make(chan struct{})}
	go func() {
		s.journal.copy(pipe)
		_ = cmd.Wait() // the state says the same
		s.state = cmd.ProcessState
		close(s.ended)
		s.journal.close()
	}()
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	})
	s.address = s.jarlAddress(t, "")
	return s
}

// jarlAddress is where the listener of a limiter listens; of any, if the name is empty.
func (s *server) jarlAddress(t *testing.T, name string) string {
	t.Helper()
	line, err := s.journal.await(func(line string) bool {
		return strings.Contains(line, "serving JARL") && strings.Contains(line, "pace/"+name)
	})
	if err != nil {
		t.Fatal(err)
	}
	return loggedAddress(line)
}

// askJARL is one request, and all of its answer, which has to end in an orderly way.
func askJARL(ctx context.Context, address string) (string, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(patience))
	answer, err := io.ReadAll(conn)
	return string(answer), err
}

// seconds asks, and returns the answer as clients understand it.
func (s *server) seconds(t *testing.T) float64 {
	t.Helper()
	answer, err := askJARL(t.Context(), s.address)
	if err != nil {
		t.Fatalf("asking at %s: %v; it said\n%s", s.address, err, s.journal)
	}
	delay, err := strconv.ParseFloat(answer[:min(7, len(answer))], 64)
	if err != nil {
		t.Fatalf("the answer is %q, want seconds", answer)
	}
	return delay
}

// jarlModes are the answers to a burst, when three may go in a minute: at most, for the burst takes a
// moment.
var jarlModes = []struct {
	flags   string
	answers []float64
}{
	{"", []float64{0, 0, 0, 60, 60, 60, 120}},
	{"--mode reserve", []float64{0, 0, 0, 60, 60, 60, 120}},
	{"--mode=paced", []float64{0, 0, 0, 60, 80, 100, 120}},
	{"--mode=classic", []float64{0, 0, 0, 80, 100, 120, 140}},
	{"--mode=poll", []float64{0, 0, 0, 60, 60, 60, 60}},
	{"--guard=500ms", []float64{0, 0, 0, 60.5, 60.5, 60.5, 121}},
	{"--mode=classic --guard 1s", []float64{0, 0, 0, 81, 101, 121, 142}},
}

func TestJARLModes(t *testing.T) {
	t.Parallel()
	for _, m := range jarlModes {
		t.Run(m.flags, func(t *testing.T) {
			t.Parallel()
			s := startJARL(t, append(strings.Fields(m.flags), "--period", "60")...)
			began := time.Now()
			for i, most := range m.answers {
				got := s.seconds(t)
				late := time.Since(began).Seconds()
				if got > most+0.001 || got < most-late {
					t.Errorf("answer %d = %.3f, want %.3f or up to %.3f less", i+1, got, most, late)
				}
			}
		})
	}
}

// The answer has no line end, and zero has three bytes; the connection ends behind it. Seven bytes hold
// all of it up to a day.
func TestJARLWire(t *testing.T) {
	t.Parallel()
	s := startJARL(t, "--requests", "1", "--period", "900")
	for i := range 15 {
		answer, err := askJARL(t.Context(), s.address)
		if err != nil {
			t.Fatal(err)
		}
		want := regexp.MustCompile(`^([1-9]\d{2}\.\d{3}|[1-9]\d{3}\.\d{2}|[1-9]\d{4}\.\d)$`)
		if i == 0 {
			want = regexp.MustCompile(`^0\.0$`)
		}
		seconds, _ := strconv.ParseFloat(answer, 64)
		if most := float64(i * 900); !want.MatchString(answer) || seconds > most || seconds < most-60 {
			t.Errorf("answer %d = %q, want %.0f or a little less in at most 7 bytes", i+1, answer, most)
		}
	}
}

func TestJARLEndsBySignals(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		s := startJARL(t)
		var dialer net.Dialer
		held, err := dialer.DialContext(t.Context(), "tcp", s.address) // and does not hang up
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = held.Close() })
		s.seconds(t)
		told := time.Now()
		s.signal(signal)
		status, err := s.exit()
		if took := time.Since(told); err != nil || status != 0 || took > 15*time.Second {
			t.Errorf("after %s it ended with %d, %v, in %s, want 0 soon; it said\n%s",
				signal, status, err, took, s.journal)
		}
		if _, err := askJARL(t.Context(), s.address); err == nil {
			t.Error("after the end somebody still answers")
		}
	}
}

// Only the one port is opened.
func TestJARLOpensOnePort(t *testing.T) {
	t.Parallel()
	s := startJARL(t)
	_, port, _ := net.SplitHostPort(s.address)
	number, _ := strconv.Atoi(port)
	sockets := s.sockets(t)
	var listening []string
	for _, table := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile("/proc/net/" + table)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			const listen, local, state, inode = "0A", 1, 3, 9
			fields := strings.Fields(line)
			if len(fields) > inode && fields[state] == listen && sockets[fields[inode]] {
				listening = append(listening, fields[local])
			}
		}
	}
	if want := fmt.Sprintf("0100007F:%04X", number); len(listening) != 1 || listening[0] != want {
		t.Errorf("the process listens at %v, want at %s alone", listening, want)
	}
}

// sockets are the inodes of the sockets that the process has.
func (s *server) sockets(t *testing.T) map[string]bool {
	t.Helper()
	folder := fmt.Sprintf("/proc/%d/fd/", s.process.Pid)
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	inodes := make(map[string]bool)
	for _, entry := range entries {
		target, _ := os.Readlink(folder + entry.Name()) // it may be gone by now
		if inode, ok := strings.CutPrefix(target, "socket:["); ok {
			inodes[strings.TrimSuffix(inode, "]")] = true
		}
	}
	return inodes
}
