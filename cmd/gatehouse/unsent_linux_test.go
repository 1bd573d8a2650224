package main

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/gatehousehq/gatehouse/internal/await"
	"github.com/gatehousehq/gatehouse/internal/peer"
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

// An urgent byte hides nothing behind it: who waits and sends more than is allowed is known to.
func TestUrgentBytesHideNothing(t *testing.T) {
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
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	sent := peer.Ask(client, func(fd int32) bool {
		return unix.Send(int(fd), []byte("u"), unix.MSG_OOB) == nil
	})
	if !sent {
		t.Fatal("no urgent byte could be sent")
	}
	if _, err := client.Write([]byte("bytes")); err != nil {
		t.Fatal(err)
	}
	await.True(t, "all 6 bytes are known", func() bool {
		return peer.Ask(server, func(fd int32) bool { return peer.UnreadBytes(fd) == 6 })
	})
	got := make([]byte, 6)
	if _, err := io.ReadFull(server, got); err != nil || string(got) != "ubytes" {
		t.Errorf("read %q, %v, want the urgent byte and those behind it", got, err)
	}
}
