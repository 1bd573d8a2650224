package main

import (
	"errors"
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// What the kernel takes for a client that does not read counts as memory of the server's container.
func TestTheKernelKeepsLittleUnsent(t *testing.T) {
	listener, err := listenTCP(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	var dialer net.Dialer
	client, err := dialer.DialContext(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	if err := client.(*net.TCPConn).SetReadBuffer(2304); err != nil {
		t.Fatal(err)
	}
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	raw, err := server.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	taken, chunk := 0, make([]byte, 8<<20)
	err = raw.Write(func(fd uintptr) bool {
		for {
			n, err := unix.Write(int(fd), chunk)
			if errors.Is(err, syscall.EAGAIN) {
				return true
			}
			taken += max(n, 0)
		}
	})
	if err != nil || taken > 512<<10 {
		t.Errorf("the kernel took %d bytes for a client that does not read (%v), want at most 512 KiB",
			taken, err)
	}
	t.Logf("the kernel took %d bytes", taken)
}
