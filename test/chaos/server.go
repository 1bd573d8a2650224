//go:build linux || darwin

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gatehousehq/gatehouse/internal/freeport"
)

// patience is how long a process may take to be ready. It takes some 100 ms.
const patience = 30 * time.Second

// A serverVictim is one gatehouse, which keeps its addresses over a restart.
type serverVictim struct {
	label      string
	http, resp string
	binary     string
	store      string
	log        string // a file

	mu      sync.Mutex
	process *exec.Cmd
	exited  chan struct{}
	killed  bool
}

// newServer is a server that is not started yet.
func newServer(number int, binary, store, folder string) (*serverVictim, error) {
	s := &serverVictim{label: fmt.Sprintf("server %d", number+1), binary: binary, store: store}
	s.log = filepath.Join(folder, fmt.Sprintf("server-%d.log", number+1))
	var err error
	// Chosen once: clients expect a restarted server at the same addresses.
	s.http, err = freeport.Next()
	if err != nil {
		return nil, err
	}
	s.resp, err = freeport.Next()
	return s, err
}

// startVictim starts the server, and waits until it serves.
func (s *serverVictim) startVictim() error {
	// Appended, so that a restart keeps what the log says about an earlier end.
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(s.binary, "serve",
		"--http", s.http, "--resp", s.resp, "--grpc", "", "--store", s.store)
	cmd.Env = plainEnvironment()
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	s.mu.Lock()
	s.process, s.exited, s.killed = cmd, exited, false
	s.mu.Unlock()
	// The process is awaited at once and not only when it is killed: findCrashes has to see that it ended.
	go func() {
		_ = cmd.Wait() // that it was killed is no news
		close(exited)
	}()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for {
		if w, err := dialServer(s.resp, sendRESP); err == nil {
			return w.conn.Close()
		}
		select {
		case <-look.C:
		case <-exited:
			return fmt.Errorf("%s ended; its log is %s", s.label, s.log)
		case <-ctx.Done():
			return fmt.Errorf("%s does not serve after %v; its log is %s", s.label, patience, s.log)
		}
	}
}

// plainEnvironment is that of this process, without settings for servers.
func plainEnvironment() []string {
	var list []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "GATEHOUSE_") && !strings.HasPrefix(variable, "BOUNCER_") {
			list = append(list, variable)
		}
	}
	return list
}

func (s *serverVictim) victimName() string { return s.label }

// killVictim ends the server at once, and returns when it is gone.
func (s *serverVictim) killVictim() {
	s.mu.Lock()
	// Before the signal, or hasCrashed could take the kill for a crash.
	s.killed = true
	s.mu.Unlock()
	if s.sendSignal(syscall.SIGKILL) {
		<-s.exited
	}
}

func (s *serverVictim) freezeVictim() { s.sendSignal(syscall.SIGSTOP) }

func (s *serverVictim) thawVictim() { s.sendSignal(syscall.SIGCONT) }

// sendSignal reports whether the server was ever started.
func (s *serverVictim) sendSignal(signal syscall.Signal) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return false
	}
	_ = s.process.Process.Signal(signal) // it may have ended
	return true
}

// hasCrashed reports whether the server has ended without having been killed.
func (s *serverVictim) hasCrashed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.exited:
		return !s.killed
	default:
		return false
	}
}
