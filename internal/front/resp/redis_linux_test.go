package resp

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/redistest"
)

// asRedis is what a real Redis is sent too: it must answer the same, byte for byte.
var asRedis = []string{
	wire("PING"), wire("ping", "x"), wire("PING", "a", "b"), wire("ECHO", "a\r\nb"), wire("ECHO"),
	wire("ECHO", "a", "b"), wire("SELECT", "0"), wire("SELECT", "x"), wire("SELECT"),
	wire("AUTH", "secret"), wire("AUTH", "default", "secret"), wire("AUTH", "bob", "secret"),
	wire("AUTH", "a", "b", "c"), wire("AUTH"),
	wire("HELLO", "4"), wire("HELLO", "x"), wire("HELLO", "3", "NAME", "x"), wire("HELLO", "3", "SETNAME"),
	wire("HELLO", "3", "SETNAME", "a b"), wire("HELLO", "3", "AUTH", "bob", "x"),
	wire("CLIENT", "GETNAME"), wire("CLIENT", "SETNAME", "a b"), wire("CLIENT", "SETNAME", "me"),
	wire("CLIENT", "GETNAME"), wire("CLIENT", "SETNAME", ""), wire("CLIENT", "GETNAME"),
	wire("CLIENT", "GETREDIR"), wire("CLIENT"), wire("CLIENT", "FOO"), wire("CLIENT", "SETNAME"),
	wire("CLIENT", "NO-EVICT", "ON"), wire("CLIENT", "NO-EVICT", "OFF"), wire("CLIENT", "NO-EVICT", "X"),
	wire("CLUSTER", "SLOTS"), wire("CONFIG", "GET", "save"), wire("CONFIG", "GET", "no-such"),
	wire("CONFIG", "GET"), wire("CONFIG"), wire("COMMAND", "INFO", "no-such"), wire("COMMAND", "FOO"),
	wire("FOO"), wire("foo", "a", "b"), wire("FOO", strings.Repeat("x", 200), "b"), wire(""),
	"*0\r\n" + wire("PING"), "*-1\r\n" + wire("PING"), "PING\r\n", "\r\nPING\n", "ping 'a b'\n",
	"ECHO \"\\x41\\n'\"\r\n", "ECHO ''\r\n",
	wire("RESET"), wire("QUIT"),
}

// What ends the connection in Redis, ends it here, with the same words.
var endsAsInRedis = []string{
	"*x\r\n", "*1\r\n:1\r\n", "*1\r\n$x\r\n", "*1\r\n$-1\r\n", "ECHO 'a\n", "ECHO \"a\n", "ECHO 'a'b\n",
}

func TestAsRedisAnswers(t *testing.T) {
	address := redistest.Start(t).Address
	for _, hello := range []string{"", wire("HELLO", "2", "SETNAME", "x"), wire("HELLO", "3")} {
		for _, data := range asRedis {
			compare(t, address, hello, data)
		}
	}
	for _, data := range endsAsInRedis {
		compare(t, address, "", wire("PING")+data)
	}
}

// compare sends the same to a Redis and to a door, each time on a new connection, and then makes both
// close it.
func compare(t *testing.T, address, hello, data string) {
	t.Helper()
	d := open(t, Config{})
	defer d.shut(t)
	got, want := tail(t, d.address, hello, data), tail(t, address, hello, data)
	if got != want {
		t.Errorf("%q is answered\n%q, want, as Redis does,\n%q", data, got, want)
	}
}

// tail is all that is answered behind the answer to hello.
func tail(t *testing.T, address, hello, data string) string {
	t.Helper()
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	c := &client{Conn: conn, t: t}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	const mark = "the answer to hello ends here"
	c.send(hello + wire("ECHO", mark) + data + wire("QUIT"))
	all, _ := io.ReadAll(conn) // Redis may reset the connection, which is no matter
	for i := range all {
		if end := i + len(mark); end <= len(all) && string(all[i:end]) == mark {
			return string(all[end:])
		}
	}
	return string(all)
}
