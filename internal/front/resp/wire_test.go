package resp

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Recorded exchanges, byte for byte: C is what the client sends, S what the server sends.
func TestExchanges(t *testing.T) {
	files, err := filepath.Glob("testdata/wire/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("testdata/wire has %d files, %v, want some", len(files), err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			d, _ := openStill(t)
			c := d.dial(t)
			file, err := os.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = file.Close() }()
			scanner := bufio.NewScanner(file)
			scanner.Buffer(nil, 1<<20)
			for n := 1; scanner.Scan(); n++ {
				if line := scanner.Text(); line != "" && line[0] != '#' {
					c.exchange(n, line)
				}
			}
		})
	}
}

// exchange plays one line.
func (c *client) exchange(n int, line string) {
	c.t.Helper()
	who, what, _ := strings.Cut(line, " ")
	data, err := strconv.Unquote(`"` + what + `"`)
	if err != nil {
		c.t.Fatalf("line %d: %v", n, err)
	}
	switch {
	case who == "C" && what == "closed":
		_ = c.Close()
	case who == "C":
		c.send(data)
	case what == "closed":
		c.over()
	default:
		got := make([]byte, len(data))
		if k, err := io.ReadFull(c.reader, got); err != nil || string(got) != data {
			c.t.Fatalf("line %d: the server sent\n%q, %v, want\n%q", n, got[:k], err, data)
		}
	}
}

// However a client cuts what it sends into packets, and however much it sends at once, the answers are
// the same, in the order of the commands.
func TestPackets(t *testing.T) {
	d := open(t, Config{})
	var script, want strings.Builder
	for i := range 300 {
		script.WriteString(wire("ECHO", strconv.Itoa(i)))
		script.WriteString("ECHO '" + strconv.Itoa(i) + "'\r\n")
		for range 2 {
			text := strconv.Itoa(i)
			want.WriteString("$" + strconv.Itoa(len(text)) + "\r\n" + text + "\r\n")
		}
	}
	for _, size := range []int{1, 7, 64, 1000, 1 << 20} {
		c := d.dial(t)
		for rest := script.String(); rest != ""; {
			n := min(size, len(rest))
			c.send(rest[:n])
			rest = rest[n:]
		}
		got := make([]byte, want.Len())
		if _, err := io.ReadFull(c.reader, got); err != nil || string(got) != want.String() {
			t.Errorf("in packets of %d bytes: %v, %.100q, want %.100q", size, err, got, want.String())
		}
	}
}

// A long pipeline is answered in full to a client that reads nothing until it has sent everything.
func TestLongPipeline(t *testing.T) {
	d := open(t, Config{})
	c := d.dial(t)
	const commands = 100_000
	c.send(strings.Repeat(wire("CL.THROTTLE", "user123", "15", "30", "60"), commands))
	for i := range commands {
		if answer := c.answer(); !strings.HasPrefix(answer, "[") {
			t.Fatalf("answer %d = %s, want five numbers", i, answer)
		}
	}
	c.want("PING", "PONG")
}

// Who sends no more gets the answers to what it has sent.
func TestClientThatSendsNoMore(t *testing.T) {
	d := open(t, Config{})
	c := d.dial(t)
	c.send(strings.Repeat(wire("PING"), 1000))
	if err := c.Conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		if got := c.answer(); got != "PONG" {
			t.Fatalf("answer = %s, want PONG", got)
		}
	}
	c.over()
}

// Connections that do nothing stay, and cost nothing.
func TestIdleConnectionsStay(t *testing.T) {
	d := open(t, Config{ReadTimeout: 20 * time.Millisecond, WriteTimeout: 20 * time.Millisecond})
	c := d.dial(t)
	c.want("PING", "PONG")
	_ = c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	if _, err := c.reader.ReadByte(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection that does nothing: %v, want it to stay", err)
	}
	_ = c.SetReadDeadline(time.Time{})
	c.want("PING", "PONG")
}
