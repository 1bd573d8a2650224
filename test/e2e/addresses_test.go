package e2e

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// everyDoor is a server with all doors on localhost, and their ports.
func everyDoor(t *testing.T, flags ...string) (ports map[string]string) {
	t.Helper()
	path := configFile(t, "jarl: [{listen: 'localhost:0', name: address, requests: 1000000, period: 1s}]\n")
	s := start(t, append([]string{"--resp", "localhost:0", "--grpc", "localhost:0", "--config", path},
		flags...)...)
	ports = map[string]string{}
	for _, door := range []string{"HTTP", "RESP", "gRPC", "JARL"} {
		_, port, err := net.SplitHostPort(loggedAddress(awaitLine(t, s.journal, "serving "+door)))
		if err != nil {
			t.Fatal(err)
		}
		ports[door] = port
	}
	return ports
}

// dialFrom connects from an address of this machine.
func dialFrom(t *testing.T, from, to string) net.Conn {
	t.Helper()
	dialer := net.Dialer{Timeout: patience}
	if from != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	conn, err := dialer.DialContext(t.Context(), "tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// talks are what each door answers, asked in its own words; that of a door in HTTP/2 begins with its
// settings.
var talks = map[string]struct{ ask, answer string }{
	"HTTP": {"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 200 OK"},
	"RESP": {"PING\r\n", "+PONG"},
	"gRPC": {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", "\x00\x00"},
	"JARL": {"", "0"},
}

// answers reports whether a door answers on a connection, or what it says instead.
func answers(t *testing.T, door string, conn net.Conn) (yes bool, said string) {
	t.Helper()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(conn, talks[door].ask) // one that is refused may be closed already
	answer := make([]byte, len(talks[door].answer))
	n, _ := io.ReadFull(conn, answer)
	if said = string(answer[:n]); said == talks[door].answer {
		return true, said
	}
	rest, _ := io.ReadAll(conn)
	return false, said + string(rest)
}

// Localhost is 127.0.0.1 and ::1, at the same port, through every door.
func TestLocalhostIsBothFamilies(t *testing.T) {
	t.Parallel()
	families := []string{"127.0.0.1"}
	if six, err := net.Listen("tcp", "[::1]:0"); err == nil {
		_ = six.Close()
		families = append(families, "::1")
	}
	for door, port := range everyDoor(t) {
		for _, family := range families {
			conn := dialFrom(t, "", net.JoinHostPort(family, port))
			if ok, said := answers(t, door, conn); !ok {
				t.Errorf("%s at %s says %q, want %q", door, family, said, talks[door].answer)
			}
		}
	}
}

// One address may have its share of the connections of each door; others have theirs.
func TestConnectionsPerAddress(t *testing.T) {
	t.Parallel()
	const sorry = "server has as many connections from this address as it allows; try again soon"
	refusals := map[string]string{
		"HTTP": sorry, "gRPC": sorry, "RESP": "-ERR max number of clients of one address reached\r\n",
		"JARL": "",
	}
	ports := everyDoor(t, "--max-connections", "8", "--max-connections-per-address", "3")
	for door, port := range ports {
		address := net.JoinHostPort("127.0.0.1", port)
		var conns []net.Conn
		for range 3 {
			conn := dialFrom(t, "", address)
			if ok, said := answers(t, door, conn); !ok {
				t.Errorf("%s says %q to one of three connections, want %q", door, said, talks[door].answer)
			}
			conns = append(conns, conn)
		}
		ok, said := answers(t, door, dialFrom(t, "", address))
		for limit := time.Now().Add(patience); ok && door == "JARL" && time.Now().Before(limit); {
			// It closes a connection half a second after its answer, so that a slow machine has fewer than
			// three.
			ok, said = answers(t, door, dialFrom(t, "", address))
		}
		if ok || !strings.HasSuffix(said, refusals[door]) {
			t.Errorf("%s says %q to the fourth connection of an address, want %q", door, said, refusals[door])
		}
		if ok, said := answers(t, door, dialFrom(t, "127.0.0.2", address)); !ok {
			t.Errorf("%s says %q to another address, want %q", door, said, talks[door].answer)
		}
		_ = conns[0].Close()
		// That the server has seen the end of one is only told by its taking another.
		freed := func() bool {
			conn := dialFrom(t, "", address)
			ok, _ := answers(t, door, conn)
			_ = conn.Close()
			return ok
		}
		for limit := time.Now().Add(patience); !freed(); {
			if time.Now().After(limit) {
				t.Fatalf("%s takes no connection of an address in place of one that was closed", door)
			}
		}
	}
}
