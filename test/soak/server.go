//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gatehousehq/gatehouse/internal/freeport"
)

// patience is how long the server may take to be ready, and to end.
const patience = 30 * time.Second

// An attackedServer is the process of the server under attack.
type attackedServer struct {
	http, resp, grpc, jarl string // addresses

	process *exec.Cmd
	ended   chan struct{}
}

// capacityConfig has one resource for honest clients and many for others.
const capacityConfig = `resources:
  - identifier_glob: "*"
    capacity: 1000
    algorithm: {kind: FAIR_SHARE, lease_length: 60, refresh_interval: 5, learning_mode_duration: 0}
`

const serverConfig = `jarl:
  - listen: %s
    name: soak
    requests: 1000
    period: 1s
`

// startServer starts a server with all listeners and the memory limit of the config.
func startServer(ctx context.Context, c soakConfig) (*attackedServer, error) {
	s := &attackedServer{ended: make(chan struct{})}
	for _, address := range []*string{&s.http, &s.resp, &s.grpc, &s.jarl} {
		var err error
		*address, err = freeport.Next()
		if err != nil {
			return nil, err
		}
	}
	// The JARL listener and the capacity templates can be given by files only.
	settings := filepath.Join(c.folder, "gatehouse.yaml")
	templates := filepath.Join(c.folder, "capacity.yaml")
	err := errors.Join(
		os.WriteFile(settings, fmt.Appendf(nil, serverConfig, s.jarl), 0o600),
		os.WriteFile(templates, []byte(capacityConfig), 0o600))
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(c.folder, "log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	s.process = exec.Command(c.binary, "serve", "--config", settings, "--capacity-config", templates,
		"--http", s.http, "--resp", s.resp, "--grpc", s.grpc)
	s.process.Stderr = log
	s.process.Env = plainEnvironment()
	// Go keeps the heap below its own limit as long as it can; the rest is stacks and what the system needs.
	// A tenth is left for that.
	s.process.Env = append(s.process.Env, fmt.Sprintf("GOMEMLIMIT=%d", c.memory/10*9))
	if err := s.process.Start(); err != nil {
		return nil, err
	}
	go func() { // ends with the process
		_ = s.process.Wait() // the state says the same
		close(s.ended)
	}()
	if err := s.awaitReady(ctx); err != nil {
		_ = s.process.Process.Kill()
		return nil, err
	}
	return s, nil
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

// awaitReady waits until the server serves.
func (s *attackedServer) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	// Any answer will do: the server listens only when it can serve.
	for {
		url := "http://" + s.http + "/readyz"
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return err
		}
		if response, err := http.DefaultClient.Do(request); err == nil {
			return response.Body.Close()
		}
		select {
		case <-look.C:
		case <-s.ended:
			return errors.New("the server ended")
		case <-ctx.Done():
			return fmt.Errorf("the server does not serve: %w", ctx.Err())
		}
	}
}

// hasEnded reports whether the server has ended.
func (s *attackedServer) hasEnded() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// stopServer ends the server and returns its status; -1 when it had to be killed.
func (s *attackedServer) stopServer() int {
	_ = s.process.Process.Signal(syscall.SIGTERM) // it may have ended
	// A server that drains may take a while, but one that hangs must not stop the soak.
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-s.ended:
	case <-timer.C:
		_ = s.process.Process.Kill()
		<-s.ended
	}
	return s.process.ProcessState.ExitCode()
}

// residentMemory is how much memory the process has, in bytes; 0 when it has ended.
func (s *attackedServer) residentMemory() int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", s.process.Process.Pid))
	// The second field counts the pages that are resident.
	if fields := strings.Fields(string(text)); err == nil && len(fields) > 1 {
		pages, _ := strconv.ParseInt(fields[1], 10, 64)
		return pages * int64(os.Getpagesize())
	}
	return 0
}
