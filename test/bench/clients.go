package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The requests, and the answers of the floor.
const (
	waitRequest = "GET /v1/event/bench/wait HTTP/1.1\r\nHost: localhost\r\n\r\n"
	sendRequest = "GET /v1/event/bench/send HTTP/1.1\r\nHost: localhost\r\n\r\n"
	noContent   = "HTTP/1.1 204 No Content\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n\r\n"
	notFound    = "HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
)

// waitAsClients opens connections that wait for the event, reports that, sends the event on
// command, and reports how long it took until all were answered. There is no goroutine for each of them, so
// that the clients are not what is measured.
func waitAsClients(address string, count int) error {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	for i := range count {
		fd, err := request(address, waitRequest)
		if err != nil {
			return fmt.Errorf("client %d: %w", i, err)
		}
		// The interest is registered after the request: no answer can be lost, since epoll reports what is
		// already there.
		event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)} //nolint:gosec // a descriptor
		if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
			return fmt.Errorf("epoll: %w", err)
		}
		if i%100 == 0 {
			time.Sleep(10 * time.Millisecond) // the server's backlog is finite
		}
	}
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	// From here on every step is in the figure, also the connection of the sender.
	start := time.Now()
	if _, err := request(address, sendRequest); err != nil {
		return fmt.Errorf("sending: %w", err)
	}
	if err := readAnswers(epoll, count); err != nil {
		return err
	}
	fmt.Println(time.Since(start))
	return nil
}

// request opens a connection and writes to it.
func request(address, text string) (fd int, err error) {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return 0, err
	}
	// The system's own calls: with package net, reading would take a goroutine for each connection.
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("socket: %w", err)
	}
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}); err != nil {
		return 0, fmt.Errorf("connect: %w", err)
	}
	if _, err := unix.Write(fd, []byte(text)); err != nil {
		return 0, fmt.Errorf("write: %w", err)
	}
	return fd, nil
}

// readAnswers reads one answer on each of count connections.
func readAnswers(epoll, count int) error {
	const patience = 10_000 // ms
	events := make([]unix.EpollEvent, 256)
	var answer [1024]byte
	for count > 0 {
		n, err := unix.EpollWait(epoll, events, patience)
		// The runtime interrupts system calls with signals; that is no failure.
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			return fmt.Errorf("%d have no answer after 10 s, %w", count, err)
		}
		for _, e := range events[:n] {
			// An answer is one small write, so one read gets all of it. Each descriptor is ready once,
			// which lets n be subtracted below.
			read, err := unix.Read(int(e.Fd), answer[:])
			if text := string(answer[:max(0, read)]); err != nil || !strings.HasPrefix(text, noContent[:12]) {
				return fmt.Errorf("answer is %q, %w, want 204", text, err)
			}
		}
		count -= n
	}
	return nil
}

// serveSockets is the floor: it answers no waiter until the event is sent, and then all of them.
func serveSockets(address string) error {
	listener, err := net.Listen("tcp", address) //nolint:noctx // until the process ends
	if err != nil {
		return err
	}
	var waiting []net.Conn
	buffer := make([]byte, 4096)
	for {
		// One goroutine reads all requests in turn: the least that such a server can do. The clients write
		// at once, so a read blocks only briefly.
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		n, _ := conn.Read(buffer) // a probe closes without a request
		switch string(buffer[:n]) {
		case waitRequest:
			// Such a connection stays open; all others are closed below.
			waiting = append(waiting, conn)
			continue
		case sendRequest:
			answerAll(waiting)
		default:
			_, _ = conn.Write([]byte(notFound))
		}
		_ = conn.Close()
	}
}

func answerAll(waiting []net.Conn) {
	for _, conn := range waiting {
		_, _ = conn.Write([]byte(noContent)) // whoever gets no answer, says so
	}
}
