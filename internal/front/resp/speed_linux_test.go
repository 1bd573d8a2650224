package resp

import (
	"bytes"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/decisions"
	"github.com/gatehousehq/gatehouse/store/memory"
	"golang.org/x/sys/unix"
)

// What observing costs of CL.THROTTLE, 16 at a time over a real connection: a server with an observer and one
// without take turns in one process, so that both meet the same machine. Processor time is that of the
// process without the client's thread. %more is the median of the pairs.
func BenchmarkObservedThrottle(b *testing.B) {
	for name, limit := range map[string]string{"granted": "100000000", "refused": "1"} {
		b.Run(name, func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			number := "$" + strconv.Itoa(len(limit)) + "\r\n" + limit + "\r\n"
			line := "*5\r\n$11\r\nCL.THROTTLE\r\n$6\r\nuser:1\r\n" + number + number + "$1\r\n1\r\n"
			pipeline := bytes.Repeat([]byte(line), gate.MaxTogether)
			recorder := decisions.New(decisions.Config{Kept: decisions.DefaultKept, Now: time.Now})
			plain, observed := newTimed(b, gate.Config{}), newTimed(b, gate.Config{Observer: recorder})
			plain.measure(b, pipeline)
			observed.measure(b, pipeline)
			var more, without, with []float64
			for i := range b.N {
				// Neither is always the one that finds the caches as the other has left them.
				var p, o float64
				if i%2 == 0 {
					p = plain.measure(b, pipeline)
					o = observed.measure(b, pipeline)
				} else {
					o = observed.measure(b, pipeline)
					p = plain.measure(b, pipeline)
				}
				more = append(more, 100*(o/p-1))
				without, with = append(without, p), append(with, o)
			}
			b.ReportMetric(medianOf(without), "ns/plain")
			b.ReportMetric(medianOf(with), "ns/observed")
			b.ReportMetric(medianOf(more), "%more")
		})
	}
}

// A timed is a connection to a server of its own.
type timed struct{ net.Conn }

func newTimed(b *testing.B, config gate.Config) timed {
	b.Helper()
	s, err := New(Config{
		Gate: gate.New(memory.New(memory.Config{}), config), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = conn.Close()
		_ = s.Shutdown(b.Context())
		if err := <-served; err != nil {
			b.Error(err)
		}
	})
	return timed{conn}
}

// measure returns how much processor time a command takes, in ns, of some thousands.
func (c timed) measure(b *testing.B, pipeline []byte) float64 {
	b.Helper()
	const rounds, linesOfAnswer = 256, 6
	answers := make([]byte, 16<<10)
	began := processorTime(b)
	for range rounds {
		if _, err := c.Write(pipeline); err != nil {
			b.Fatal(err)
		}
		for lines := 0; lines < gate.MaxTogether*linesOfAnswer; {
			n, err := c.Read(answers)
			if err != nil {
				b.Fatal(err)
			}
			lines += bytes.Count(answers[:n], []byte{'\n'})
		}
	}
	return float64(processorTime(b)-began) / rounds / gate.MaxTogether
}

func medianOf(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

// processorTime is the processor time of all other threads of this process, in ns.
func processorTime(b *testing.B) int64 {
	b.Helper()
	var process, thread unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &process); err != nil {
		b.Fatal(err)
	}
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &thread); err != nil {
		b.Fatal(err)
	}
	return process.Nano() - thread.Nano()
}
