package resp

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/budget"
)

func TestTooManyConnections(t *testing.T) {
	const most = 5
	d := open(t, Config{Conns: most})
	var clients []*client
	for range most {
		c := d.dial(t)
		c.want("PING", "PONG")
		clients = append(clients, c)
	}
	c := d.dial(t)
	if got, want := c.answer(), "-ERR max number of clients reached"; got != want {
		t.Errorf("connection %d was told %s, want %s", most+1, got, want)
	}
	c.over()
	clients[0].want("QUIT", "OK")
	until(t, "one has left", func() bool { return d.open.Load() == most-1 })
	d.dial(t).want("PING", "PONG")
}

// Half a command is not kept for ever, whether or not more of it comes now and then.
func TestHalfACommand(t *testing.T) {
	d := open(t, Config{ReadTimeout: 50 * time.Millisecond})
	silent, slow, fine := d.dial(t), d.dial(t), d.dial(t)
	silent.send("*1\r\n$4\r\nPI")
	for {
		_, _ = io.WriteString(slow.Conn, "x")
		_ = slow.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
		_, err := slow.reader.ReadByte()
		if err == nil {
			t.Error("who sends a byte now and then got an answer, want the end")
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			break // the end
		}
	}
	silent.over()
	fine.want("PING", "PONG")
}

// A client that takes no answers is cut off: when it has taken none for some time, or when there are too
// many.
func TestClientThatDoesNotRead(t *testing.T) {
	for _, c := range []struct {
		fact    string
		timeout time.Duration
		bytes   int
	}{
		{"not for long enough", 50 * time.Millisecond, 8 << 20},
		{"not enough", time.Hour, 64 << 20},
	} {
		d := open(t, Config{WriteTimeout: c.timeout})
		deaf := d.dial(t)
		pipeline := strings.Repeat(wire("ECHO", strings.Repeat("x", 16_000)), c.bytes/16_000)
		go deaf.send(pipeline)
		until(t, c.fact+": it is cut off", func() bool { return d.last.Load() == 1 && d.open.Load() == 0 })
		if held := d.config.Budget.Used(); held != 0 {
			t.Errorf("%s: %d bytes are held when it is gone, want 0", c.fact, held)
		}
	}
}

// How much may be sent behind a command that waits.
func TestTooMuchBehindAWait(t *testing.T) {
	d := open(t, Config{})
	keeper, c := d.dial(t), d.dial(t)
	keeper.want("GH.ACQUIRE lock/a KEY keeper", "keeper")
	ping := wire("PING")
	behind := strings.Repeat(ping, maxBehind/len(ping))
	c.send(wire("GH.ACQUIRE", "lock/a", "KEY", "c") + behind)
	d.inLine(t, 1)
	keeper.want("GH.RELEASE lock/a KEY keeper", "OK")
	if got := c.answer(); got != "c" {
		t.Errorf("the wait in front of %d bytes = %s, want c", len(behind), got)
	}
	for range maxBehind / len(ping) {
		if got := c.answer(); got != "PONG" {
			t.Fatalf("what came behind the wait = %s, want PONG", got)
		}
	}
	c.want("GH.RELEASE lock/a KEY c", "OK")

	keeper.want("GH.ACQUIRE lock/a KEY keeper", "keeper")
	go c.send(wire("GH.ACQUIRE", "lock/a", "KEY", "c") + behind + ping)
	want := fmt.Sprintf("-ERR Protocol error: more than %d bytes behind a command that waits", maxBehind)
	if got := c.answer(); got != want {
		t.Errorf("one command more = %s, want %s", got, want)
	}
	c.over()
	d.inLine(t, 0)
}

// All clients together may leave so much unread and unsaid, and no more.
func TestTooMuchOfAll(t *testing.T) {
	const holds = 8 << 20
	d := open(t, Config{Budget: budget.New(holds)})
	keeper := d.dial(t)
	keeper.want("GH.ACQUIRE lock/a KEY keeper", "keeper")
	behind := strings.Repeat("\n", maxBehind)
	for came := int64(1); came < 30; came++ {
		c := d.dial(t)
		go c.send(wire("GH.ACQUIRE", "lock/a") + behind)
		until(t, "what is kept is within the limit, and nobody waits in vain", func() bool {
			return d.last.Load() == 1+came && d.config.Budget.Used() <= holds+budget.Small*came
		})
	}
	until(t, "some are cut off", func() bool { return d.open.Load() <= 10 })
	keeper.want("PING", "PONG")
}
