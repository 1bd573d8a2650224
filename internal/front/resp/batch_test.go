package resp

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/memory"
	"github.com/panjf2000/gnet/v2"
)

// A recorder is a pipe that keeps what is written.
type recorder struct {
	pipe
	said []byte
}

func (r *recorder) Write(b []byte) (int, error) {
	r.said = append(r.said, b...)
	return len(b), nil
}

var _ gnet.Conn = (*recorder)(nil)

// answers is what a server on a clock that stands still says to pipelines.
func answers(pipelines ...[]byte) string {
	r := &recorder{}
	s := newPiped(&r.pipe)
	s.conn = r
	s.server.config.Gate = gate.New(memory.New(memory.Config{Now: new(stillClock).now}), gate.Config{})
	for _, r.in = range pipelines {
		s.serveConnection()
	}
	return string(r.said)
}

// Whatever comes together is answered as if it had come one after the other, in its order.
func TestPipelineIsOneAfterTheOther(t *testing.T) {
	words := []string{
		"CL.THROTTLE a 4 1 60", "CL.THROTTLE a 4 1 60", "CL.THROTTLE a 4 1 60 2", "CL.THROTTLE a 4 1 60 0",
		"CL.THROTTLE a 4 1 60 -1", "CL.THROTTLE a 4 1 60 99", "CL.THROTTLE a 9 2 60", "CL.THROTTLE b 0 1 60",
		"CL.THROTTLE b -1 1 60", "CL.THROTTLE b 1 0 60", "CL.THROTTLE b", "CL.THROTTLE b 1 x 60",
		"CL.THROTTLE '' 1 1 60", "CL.THROTTLE new 1 1 60 -3", "THROTTLE a 5 1 60", "THROTTLE a 0 1 60",
		"", "GCRA a 4 1 60 TOKENS 2", "GCRA a 4 1 0.5", "PING", "NOTHING", "GH.DELETE gcra/none",
		"GH.PEEK gcra/a SIZE 5 INTERVAL 300000", "GH.ACQUIRE gcra/a SIZE 5 INTERVAL 300000 MAXWAIT 0",
	}
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test's
		var apart [][]byte
		for len(apart) < 60 {
			line := words[random.IntN(len(words))]
			one := []byte(line + "\r\n")
			if random.IntN(2) == 0 { // as clients write it
				one = []byte(wire(strings.Fields(line)...))
			}
			// The same again and again needs no reading, and fills more than one batch.
			times := 1 + random.IntN(4)/3*random.IntN(2*gate.MaxTogether)
			apart = append(apart, slices.Repeat([][]byte{one}, times)...)
		}
		apart = apart[:60] // one share has room for these
		got, want := answers(bytes.Join(apart, nil)), answers(apart...)
		if got != want {
			t.Fatalf("seed %d: the pipeline\n%s\nis answered\n%q\nwant\n%q",
				seed, bytes.Join(apart, nil), got, want)
		}
	}
}
