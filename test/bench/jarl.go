package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// connections measures what a connection costs a server that answers it, in JARL's way, and closes.
func connections(ctx context.Context, b *bench) (text string, rows []row, err error) {
	var measures []func() (float64, error)
	// The floor comes first: race returns the series in the order of the measures.
	for _, command := range []func(string) []string{b.role("answers"), b.gatehouseJARL} {
		s, err := b.start(ctx, command)
		if err != nil {
			return "", nil, err
		}
		// Before any measurement: a server that answers with a delay, or an error, might be faster than one
		// that works.
		if err := s.isZero(ctx); err != nil {
			return "", nil, err
		}
		if _, err := b.connect(ctx, s, 2_000); err != nil { // to warm up
			return "", nil, err
		}
		measures = append(measures, func() (float64, error) {
			return b.connect(ctx, s, b.scale(50_000, 5_000))
		})
	}
	all, err := b.race(measures...)
	if err != nil {
		return "", nil, err
	}
	rows = []row{{"one connection, answered", all[0], all[1], nanoseconds, budget{most: 1.15}, ""}}
	text = "16 clients connect, read to the end and close, over and over, on another core than the server's.\n" +
		"The floor is a loop in Go that accepts, and for each connection a goroutine that writes `0.0`,\n" +
		"ends its side, reads to the end and closes. Both have one core. The time is the server's, in user\n" +
		"mode and in the kernel, divided by the connections."
	return text, rows, nil
}

// gatehouseJARL is a command that runs the server built from here as JARL. Its limit is so high that no
// client has to sleep.
func (b *bench) gatehouseJARL(address string) []string {
	// The jarl command has a flag for each part of the address; it was made by freeAddress and has both.
	ip, port, _ := strings.Cut(address, ":")
	return []string{
		b.ours, "jarl", "--service", "bench", "--requests", "1000000", "--period", "1",
		"--ip", ip, "--port", port,
	}
}

// isZero makes sure that the answer is to go at once.
func (s *server) isZero(ctx context.Context) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // all was read, or there is an error already
	text, err := io.ReadAll(conn)
	if err != nil || string(text) != zeroDelay {
		return fmt.Errorf("answer of %s is %q, %w, want %q", s.address, text, err, zeroDelay)
	}
	return nil
}

// connect returns the server's nanoseconds of CPU for one of n connections.
func (b *bench) connect(ctx context.Context, s *server, n int) (float64, error) {
	_, core, err := cores()
	if err != nil {
		return 0, err
	}
	// The clients have another core, so what they use is in no figure; only the server's own time is read.
	used, err := s.cpuWhile(func() error {
		return pinned(ctx, core, b.self, "-as", "callers", s.address, strconv.Itoa(n)).Run()
	})
	return float64(used) / float64(n), err
}

// zeroDelay is JARL's answer to a client that need not sleep.
const zeroDelay = "0.0"

// serveAnswers is the floor.
func serveAnswers(address string) error {
	listener, err := net.Listen("tcp", address) //nolint:noctx // until the process ends
	if err != nil {
		return err
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go answerOne(conn.(*net.TCPConn))
	}
}

// answerOne ends with the connection. It ignores errors, because the client reports an answer that is
// missing.
func answerOne(conn *net.TCPConn) {
	_, _ = conn.Write([]byte(zeroDelay))
	_ = conn.CloseWrite()
	var rest [64]byte
	for err := error(nil); err == nil; {
		_, err = conn.Read(rest[:])
	}
	_ = conn.Close()
}

// callAsClients makes count connections, 16 at a time, and reads the answer of each.
func callAsClients(address string, count int) error {
	const crowd = 16
	var group sync.WaitGroup
	var made atomic.Int64
	errs := make([]error, crowd)
	for i := range crowd {
		group.Go(func() {
			// All goroutines draw from one count, so a slow one does not leave the others idle at the end.
			for errs[i] == nil && made.Add(1) <= int64(count) {
				errs[i] = call(address)
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// call makes one connection. It uses the system's calls, so that the clients are not what is measured.
func call(address string) error {
	fd, err := request(address, "")
	if err != nil {
		return err
	}
	var text [16]byte
	n, err := unix.Read(fd, text[:])
	if err != nil || string(text[:max(0, n)]) != zeroDelay {
		return fmt.Errorf("answer is %q, %w, want %q", text[:max(0, n)], err, zeroDelay)
	}
	// The end is read too: a connection that stays open costs the server less than one that it closes.
	n, err = unix.Read(fd, text[:])
	if err != nil || n != 0 {
		return fmt.Errorf("behind the answer come %d bytes, %w, want the end", n, err)
	}
	return unix.Close(fd)
}
