package grpc

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
)

// life is one server from its start to its end, without doors, in the bubble of a test.
func life(t *testing.T, config Config, live func(s *Server)) {
	t.Helper()
	config.Log = slog.New(slog.DiscardHandler)
	if config.Now == nil {
		config.Now = time.Now
	}
	s, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	s.Configure(capacity.Templates{shared(capacity.FairShare, 100, func(t *capacity.Template) {
		t.Algorithm.Learning = nil // a lease, which is a minute
	})}, "test")
	live(s)
	if err := s.Shutdown(t.Context()); err != nil {
		t.Errorf("the end of the server = %v, want none", err)
	}
}

// gets asks for an amount, holding another.
func (s *Server) gets(t *testing.T, client string, has, wants float64) float64 {
	t.Helper()
	c := s.newCall()
	defer s.freeCall(c)
	c.client = client
	c.demands = append(c.demands, capacity.Demand{Clients: 1, Wants: wants})
	request := capacity.Request{Resource: "r"}
	if has > 0 {
		request.Has = capacity.Lease{Expiry: s.now().Add(time.Minute), Capacity: has}
	}
	c.addRequest(request, 1)
	to, err := s.answerCall(overGRPC, rpcGetCapacity, c)
	if err != nil || to.notMaster {
		t.Fatalf("%s gets %v, %v, want an answer", client, to, err)
	}
	return c.grants[0].Lease.Capacity
}

// A server that ended in good order tells the next who holds leases: once all of them have reported, it
// need not learn any longer. That counts once.
func TestSavedLeasesEndLearning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := Config{Leases: filepath.Join(t.TempDir(), "leases")}
		life(t, config, func(s *Server) {
			if got := s.gets(t, "a", 0, 30); got != 0 {
				t.Errorf("without saved leases a newcomer gets %v, want 0 while the server learns", got)
			}
			time.Sleep(time.Minute + time.Second)
			s.gets(t, "a", 0, 30)
			s.gets(t, "b", 0, 50)
		})
		life(t, config, func(s *Server) {
			if got := s.gets(t, "b", 50, 50); got != 50 {
				t.Errorf("b reports 50 and gets %v, want 50", got)
			}
			if got := s.gets(t, "c", 0, 70); got != 0 {
				t.Errorf("before a has reported a newcomer gets %v, want 0", got)
			}
			if got := s.gets(t, "a", 30, 30); got != 30 {
				t.Errorf("a reports 30 and gets %v, want 30", got)
			}
			if got := s.gets(t, "c", 0, 70); got != 20 {
				t.Errorf("when all have reported a newcomer gets %v, want the 20 that are free", got)
			}
			if _, err := os.Stat(config.Leases); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("while the server runs the file is there (%v), want it gone", err)
			}
		})
		if err := os.Remove(config.Leases); err != nil { // as if the last server had crashed
			t.Error(err)
		}
		life(t, config, func(s *Server) {
			s.gets(t, "a", 30, 30)
			if got := s.gets(t, "c", 0, 70); got != 0 {
				t.Errorf("after a crash a newcomer gets %v, want 0 while the server learns", got)
			}
		})
	})
}

// A clock that is set while no server runs ends no lease: nothing is given to a newcomer that a client which
// has not reported yet may still use.
func TestSavedLeasesOutliveAStepOfTheClock(t *testing.T) {
	for _, step := range []time.Duration{
		time.Hour, 30 * time.Second, 200 * 365 * 24 * time.Hour, -time.Hour, -200 * 365 * 24 * time.Hour,
	} {
		t.Run(step.String(), func(t *testing.T) { stepBetweenServers(t, step) })
	}
}

// stepBetweenServers sets the clock between the lives of two servers.
func stepBetweenServers(t *testing.T, step time.Duration) {
	t.Helper()
	config := Config{Leases: filepath.Join(t.TempDir(), "leases")}
	synctest.Test(t, func(t *testing.T) {
		life(t, config, func(s *Server) {
			time.Sleep(time.Minute + time.Second)
			s.gets(t, "a", 0, 100) // for a minute
		})
		given := time.Now()
		config.Now = func() time.Time { return time.Now().Add(step) }
		life(t, config, func(s *Server) {
			for time.Sleep(time.Second); time.Since(given) < time.Minute; time.Sleep(9 * time.Second) {
				if got := s.gets(t, "b", 0, 30); got != 0 {
					t.Errorf("after %v a newcomer gets %v, want 0", time.Since(given), got)
				}
			}
			time.Sleep(time.Second)
			if got := s.gets(t, "b", 0, 30); got != 30 {
				t.Errorf("after the end of all leases a newcomer gets %v, want 30", got)
			}
		})
	})
}

// Nobody held a lease: there is nothing to learn.
func TestNobodyHeldALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := Config{Leases: filepath.Join(t.TempDir(), "leases")}
		life(t, config, func(*Server) {})
		if _, err := os.Stat(config.Leases); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a server that still learns leaves a file (%v), want none: it does not know of all", err)
		}
		life(t, config, func(*Server) { time.Sleep(2 * time.Minute) })
		life(t, config, func(s *Server) {
			if got := s.gets(t, "a", 0, 30); got != 30 {
				t.Errorf("the first client gets %v, want 30 at once", got)
			}
		})
	})
}

// A server that never could decide knows nothing, and takes nothing away from what the last one knew.
func TestServersThatDecideNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := Config{
			Log: slog.New(slog.DiscardHandler), Now: time.Now, Leases: filepath.Join(t.TempDir(), "leases"),
		}
		idle := func(begun bool) {
			s, err := New(config)
			if err != nil {
				t.Fatal(err)
			}
			if begun {
				s.initAddress(new(net.TCPAddr))
			}
			if err := s.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		}
		idle(true)
		if _, err := os.Stat(config.Leases); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a server without a configuration leaves a file (%v), want none", err)
		}
		life(t, config, func(s *Server) {
			time.Sleep(2 * time.Minute)
			s.gets(t, "a", 0, 30)
		})
		idle(false) // its port was in use, say
		idle(true)
		life(t, config, func(s *Server) {
			if got := s.gets(t, "b", 0, 30); got != 0 {
				t.Errorf("before a has reported b gets %v, want 0", got)
			}
			s.gets(t, "a", 30, 30)
			if got := s.gets(t, "b", 0, 30); got != 30 {
				t.Errorf("when a has reported b gets %v, want 30", got)
			}
		})
	})
}

// Leases that ran out are gone without anybody asking.
func TestLeasesRunOutByThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		life(t, Config{}, func(s *Server) {
			s.gets(t, "a", 10, 30)
			time.Sleep(time.Minute / 2)
			s.gets(t, "b", 10, 30)
			for _, want := range []int64{2, 1, 0} {
				var got int64
				for status := range s.allResources() {
					got += status.Leases
				}
				if got != want {
					t.Errorf("there are %d leases, want %d", got, want)
				}
				time.Sleep(time.Minute/2 + time.Second)
			}
		})
	})
}

// Bytes that a server did not write are not believed.
func TestDamagedLeases(t *testing.T) {
	saved := []capacity.Saved{
		{Resource: "r<>", Client: "a\n\"", Left: time.Minute + 1}, {Resource: "q", Client: "日", Left: 0},
	}
	var file bytes.Buffer
	if err := formatSaved(&file, saved); err != nil {
		t.Fatal(err)
	}
	text := file.Bytes()
	got, err := parseSaved(text)
	if err != nil || !slices.Equal(got, saved) {
		t.Errorf("%s = %v, %v, want %v", text, got, err, saved)
	}
	for i := range text {
		broken := bytes.Clone(text)
		broken[i] ^= 1
		if got, err := parseSaved(broken); err == nil {
			t.Errorf("with another byte %d, %q = %v, want an error", i, broken, got)
		}
		if got, err := parseSaved(text[:i]); err == nil {
			t.Errorf("%d bytes, %q = %v, want an error", i, text[:i], got)
		}
	}
	path := filepath.Join(t.TempDir(), "leases")
	for _, text := range []string{"", "\n", "gatehouse leases 1 0\n",
		"gatehouse leases 3 0\nchecksum 00000000\n",
		"gatehouse leases 1 99999999999\nchecksum 00000000\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		s, err := New(Config{Log: slog.New(slog.NewTextHandler(&log, nil)), Now: time.Now, Leases: path})
		if err != nil || !strings.Contains(log.String(), "damaged") {
			t.Fatalf("with the leases %q a new server = %v and says %q, want one that says they are damaged",
				text, err, &log)
		}
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// What cannot work at the end is refused at the beginning.
func TestLeasesWhereTheyCannotBe(t *testing.T) {
	for _, c := range []struct {
		config Config
		want   string
	}{
		{Config{Leases: filepath.Join(t.TempDir(), "none", "leases")}, "no such file or directory"},
		{Config{Leases: t.TempDir()}, "is a directory"},
		{Config{Leases: "leases", Election: newVote()}, "leases: cannot be used with an election"},
	} {
		c.config.Log, c.config.Now = slog.New(slog.DiscardHandler), time.Now
		if _, err := New(c.config); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("with leases in %s a server = %v, want %s", c.config.Leases, err, c.want)
		}
	}
}

// A file of the first form, which has the ends of leases by the clock of then, is read as one of leases that
// last for long: learning ends when all have reported, or after the time of a lease, whatever the clock says.
func TestSavedLeasesOfTheFirstForm(t *testing.T) {
	const text = "gatehouse leases 1 2\n" +
		"[\"r\",\"a\",1795550405000000000]\n[\"r\",\"b\",1]\nchecksum 6d4f4c1c\n"
	begin := func(t *testing.T, live func(s *Server)) {
		t.Helper()
		config := Config{Leases: filepath.Join(t.TempDir(), "leases")}
		if err := os.WriteFile(config.Leases, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		life(t, config, live)
	}
	synctest.Test(t, func(t *testing.T) {
		begin(t, func(s *Server) {
			s.gets(t, "a", 30, 30)
			if got := s.gets(t, "c", 0, 70); got != 0 {
				t.Errorf("before b has reported a newcomer gets %v, want 0", got)
			}
			s.gets(t, "b", 50, 50)
			if got := s.gets(t, "c", 0, 70); got != 20 {
				t.Errorf("when all have reported a newcomer gets %v, want the 20 that are free", got)
			}
		})
		begin(t, func(s *Server) {
			time.Sleep(time.Minute + time.Second)
			if got := s.gets(t, "c", 0, 70); got != 70 {
				t.Errorf("after the time of a lease a newcomer gets %v, want 70", got)
			}
		})
	})
}

// Leases that last longer than learning does, in a file of a server with another configuration, make nobody
// learn for longer than without the file.
func TestSavedLeasesThatLastForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := Config{Leases: filepath.Join(t.TempDir(), "leases")}
		err := writeWhole(config.Leases, func(to io.Writer) error {
			return formatSaved(to, []capacity.Saved{{Resource: "r", Client: "a", Left: math.MaxInt64}})
		})
		if err != nil {
			t.Fatal(err)
		}
		life(t, config, func(s *Server) {
			if got := s.gets(t, "b", 0, 30); got != 0 {
				t.Errorf("at once a newcomer gets %v, want 0", got)
			}
			time.Sleep(time.Minute + time.Second)
			if got := s.gets(t, "b", 0, 30); got != 30 {
				t.Errorf("after the time of a lease it gets %v, want 30", got)
			}
		})
	})
}
