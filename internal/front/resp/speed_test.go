package resp

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/memory"
	"github.com/panjf2000/gnet/v2"
)

// A pipe is a connection that has the same to read each time.
type pipe struct {
	gnet.Conn
	in  []byte
	out int
}

func (p *pipe) Peek(int) ([]byte, error)    { return p.in, nil }
func (p *pipe) Discard(n int) (int, error)  { return n, nil }
func (p *pipe) Write(b []byte) (int, error) { p.out += len(b); return len(b), nil }
func (p *pipe) InboundBuffered() int        { return 0 }
func (p *pipe) OutboundBuffered() int       { return 0 }

// newPiped returns a session that reads from a pipe, without an event loop.
func newPiped(p *pipe) *session {
	server := &Server{
		config: Config{Gate: gate.New(memory.New(memory.Config{}), gate.Config{})},
		log:    slog.New(slog.DiscardHandler),
	}
	server.commands, server.clients, server.metrics = newCommands(), newClientCommands(), newMetrics(server)
	return &session{server: server, conn: p, loop: server.newLoop()}
}

func BenchmarkCommands(b *testing.B) {
	const pipeline = 16
	for name, line := range map[string]string{
		"granted": "*5\r\n$11\r\nCL.THROTTLE\r\n$5\r\nbench\r\n$9\r\n999999999\r\n$7\r\n1000000\r\n" +
			"$1\r\n1\r\n",
		"refused": "*5\r\n$11\r\nCL.THROTTLE\r\n$6\r\nuser:1\r\n$2\r\n15\r\n$2\r\n30\r\n$2\r\n60\r\n",
		"PING":    "*1\r\n$4\r\nPING\r\n",
		"GH.ACQUIRE": "*8\r\n$10\r\nGH.ACQUIRE\r\n$11\r\ngcra/user:1\r\n$4\r\nSIZE\r\n$2\r\n30\r\n" +
			"$8\r\nINTERVAL\r\n$5\r\n60000\r\n$7\r\nMAXWAIT\r\n$1\r\n0\r\n",
	} {
		b.Run(name, func(b *testing.B) {
			p := &pipe{in: bytes.Repeat([]byte(line), pipeline)}
			s := newPiped(p)
			b.ReportAllocs()
			for i := 0; i < b.N; i += pipeline {
				s.serveConnection()
			}
		})
	}
}
