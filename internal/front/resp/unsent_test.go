package resp

import (
	"net"
	"testing"

	"github.com/gatehousehq/gatehouse/store/storetest"
)

// A hold whose answer cannot be written is taken back, and so are those before it in a pipeline.
func TestHoldWhoseAnswerIsNotWritten(t *testing.T) {
	acquire := func(lock string) string {
		return wire("GH.ACQUIRE", "lock/"+lock, "KEY", "gone", "EXPIRES", "0")
	}
	for name, commands := range map[string]string{
		"alone":       acquire("left"),
		"in a row":    acquire("other") + acquire("left") + acquire("third"),
		"half behind": acquire("other") + acquire("left") + "*1\r\n$4\r\nPI",
	} {
		t.Run(name, func(t *testing.T) {
			s := storetest.NewLeftStore()
			d := openStore(t, Config{}, s)
			gone, left := d.dial(t), make(chan struct{})
			s.Leave <- func() {
				defer close(left)
				_ = gone.Conn.(*net.TCPConn).SetLinger(0)
				_ = gone.Close()
				until(t, "a client is seen to be gone", func() bool {
					for _, session := range d.allSessions() {
						if session.hungUp() {
							return true
						}
					}
					return false
				})
			}
			gone.send(commands)
			<-left
			for _, lock := range []string{"left", "other", "third"} {
				d.dial(t).want("GH.ACQUIRE lock/"+lock+" KEY next MAXWAIT 20000", "next")
			}
		})
	}
}

// A client that was answered, and then resets its connection, keeps what it has.
func TestHoldWhoseAnswerIsWritten(t *testing.T) {
	d := open(t, Config{})
	c := d.dial(t)
	c.want("GH.ACQUIRE lock/l KEY me EXPIRES 0", "me")
	_ = c.Conn.(*net.TCPConn).SetLinger(0)
	_ = c.Close()
	until(t, "the connection has ended", func() bool { return d.open.Load() == 0 })
	d.dial(t).want("GH.ACQUIRE lock/l KEY next MAXWAIT 0", "null")
}
