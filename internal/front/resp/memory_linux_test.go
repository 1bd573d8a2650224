package resp

import (
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A connection that is blocked costs at most 2 KiB of the server's memory. The clients are bare
// sockets, which cost none of it.
func TestMemoryOfABlockedConnection(t *testing.T) {
	d := open(t, Config{})
	d.dial(t).want("GH.WAIT event/e MAXWAIT 1", "null") // what is made once is there
	const clients, most = 2000, 2048
	fds := make([]int, 0, clients)
	defer func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}()
	before := inUse()
	for range clients {
		fds = append(fds, blockedSocket(t, d.address, wire("GH.WAIT", "event/e")))
	}
	d.inLine(t, clients)
	each := (inUse() - before) / clients
	t.Logf("%d bytes for each of %d blocked connections", each, clients)
	if each > most {
		t.Errorf("each of %d blocked connections costs %d bytes, want at most %d", clients, each, most)
	}
}

// A few bytes behind a wait cost a few bytes, whatever other clients have sent before: gnet gives a buffer
// that one client has filled to the next one as it is.
func TestBacklogsCostWhatTheyAre(t *testing.T) {
	const clients, most = 64, 16 << 10
	d := open(t, Config{})
	large := d.dial(t)
	before := inUse()
	var counted int64
	for i := range clients {
		behind := strings.Repeat("\r\n", maxBehind/4) + wire("PING")
		large.send(wire("GH.WAIT", "event/e", "MAXWAIT", "1") + behind)
		for answer := ""; answer != "PONG"; {
			answer = large.answer()
		}
		for range 2 {
			d.dial(t).send(wire("GH.WAIT", "event/e") + "*1\r\n")
		}
		d.inLine(t, 2*(i+1))
		counted = d.config.Budget.Used()
	}
	each := (inUse() - before) / (2 * clients)
	t.Logf("%d bytes for each of %d connections, %d counted for all", each, 2*clients, counted)
	if each > most {
		t.Errorf("each of %d connections with 4 bytes behind a wait costs %d bytes, want at most %d",
			2*clients, each, most)
	}
}

// inUse is what the heap and the stacks have after a collection.
func inUse() int {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC() // of what has finalizers, too
	runtime.ReadMemStats(&stats)
	return int(stats.HeapInuse + stats.StackInuse) // far less
}

// blockedSocket opens a socket of which this process knows nothing but the number, and sends a command.
func blockedSocket(t *testing.T, address, command string) (fd int) {
	t.Helper()
	to := netip.MustParseAddrPort(address)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	err = unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()})
	if err == nil {
		_, err = unix.Write(fd, []byte(command))
	}
	if err != nil {
		t.Fatal(err)
	}
	return fd
}
