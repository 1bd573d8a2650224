package resp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// complaints is a logger that fails the test.
type complaints struct{ t *testing.T }

// Printf implements the logger of go-redis.
func (c complaints) Printf(_ context.Context, format string, args ...any) {
	c.t.Errorf("go-redis complains: "+format, args...)
}

func TestGoRedis(t *testing.T) {
	redis.SetLogger(complaints{t})
	d := open(t, Config{})
	for _, protocol := range []int{2, 3} {
		c := redis.NewClient(&redis.Options{
			Addr: d.address, Protocol: protocol, ClientName: "test", ReadTimeout: -1,
		})
		ctx := t.Context()
		name := fmt.Sprintf("go-redis-%d", protocol)
		got, err := c.Do(ctx, "CL.THROTTLE", name, 15, 30, 60).Int64Slice()
		if want := []int64{0, 16, 15, -1, 2}; err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("protocol %d: CL.THROTTLE = %v, %v, want %v", protocol, got, err, want)
		}
		pipe := c.Pipeline()
		for range 20 {
			pipe.Do(ctx, "CL.THROTTLE", name, 15, 30, 60)
		}
		answers, err := pipe.Exec(ctx)
		if err != nil || len(answers) != 20 {
			t.Errorf("protocol %d: a pipeline of 20 = %d answers, %v, want 20", protocol, len(answers), err)
		}
		if key, err := c.Do(ctx, "GH.ACQUIRE", "lock/"+name, "KEY", "k").Text(); err != nil || key != "k" {
			t.Errorf("protocol %d: GH.ACQUIRE = %q, %v, want k", protocol, key, err)
		}
		err = c.Do(ctx, "GH.ACQUIRE", "lock/"+name, "KEY", "other", "MAXWAIT", 0).Err()
		if !errors.Is(err, redis.Nil) {
			t.Errorf("protocol %d: GH.ACQUIRE of what is held = %v, want nil", protocol, err)
		}
		if info, err := c.ClientInfo(ctx).Result(); err != nil || info.Name != "test" {
			t.Errorf("protocol %d: CLIENT INFO = %v, %v, want the name test", protocol, info, err)
		}
		if known, err := c.Command(ctx).Result(); err != nil || known["cl.throttle"] == nil {
			t.Errorf("protocol %d: COMMAND has %d commands, %v, want CL.THROTTLE among them",
				protocol, len(known), err)
		}
		// A blocked command has one of the pool's connections to itself.
		var waiter sync.WaitGroup
		waiter.Go(func() {
			if got, err := c.Do(ctx, "GH.WAIT", "event/"+name).Text(); err != nil || got != "go" {
				t.Errorf("protocol %d: GH.WAIT = %q, %v, want go", protocol, got, err)
			}
		})
		d.inLine(t, 1)
		if err := c.Do(ctx, "GH.SEND", "event/"+name, "MESSAGE", "go").Err(); err != nil {
			t.Errorf("protocol %d: GH.SEND = %v, want nil", protocol, err)
		}
		waiter.Wait()
		if err := c.Close(); err != nil {
			t.Errorf("protocol %d: closing = %v, want nil", protocol, err)
		}
	}
}

func TestRueidis(t *testing.T) {
	d := open(t, Config{})
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{d.address}, ClientName: "test"})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	throttle := func() rueidis.Completed {
		return c.B().ClThrottle().Key("rueidis").MaxBurst(15).CountPerPeriod(30).Period(60).Build()
	}
	got, err := c.Do(ctx, throttle()).AsIntSlice()
	if want := "[0 16 15 -1 2]"; err != nil || fmt.Sprint(got) != want {
		t.Errorf("CL.THROTTLE = %v, %v, want %s", got, err, want)
	}
	// It puts the commands of many goroutines into one pipeline.
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if err := c.Do(ctx, throttle()).Error(); err != nil {
				t.Errorf("CL.THROTTLE = %v, want nil", err)
			}
		})
	}
	all.Wait()
	peek, err := c.Do(ctx, c.B().Arbitrary("GH.PEEK").Keys("gcra/rueidis").Build()).AsIntMap()
	if err != nil || peek["granted"] != 0 || peek["limit"] != 16 {
		t.Errorf("GH.PEEK = %v, %v, want it refused, and a limit of 16", peek, err)
	}
	// What waits is to be marked as such: it gets a connection of its own, and no timeout.
	all.Go(func() {
		wait := c.B().Arbitrary("GH.WAIT").Keys("event/rueidis").Blocking()
		if got, err := c.Do(ctx, wait).ToString(); err != nil || got != "go" {
			t.Errorf("GH.WAIT = %q, %v, want go", got, err)
		}
	})
	d.inLine(t, 1)
	if err := c.Do(ctx, throttle()).Error(); err != nil {
		t.Errorf("CL.THROTTLE beside a wait = %v, want nil", err)
	}
	send := c.B().Arbitrary("GH.SEND").Keys("event/rueidis").Args("MESSAGE", "go").Build()
	if err := c.Do(ctx, send).Error(); err != nil {
		t.Errorf("GH.SEND = %v, want nil", err)
	}
	all.Wait()

	// A call that is given up closes its connection, and so leaves the line.
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	wait := c.B().Arbitrary("GH.WAIT").Keys("event/never").Blocking()
	if err := c.Do(short, wait).Error(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("GH.WAIT for 50 ms = %v, want the deadline to be over", err)
	}
	c.Close()
	d.inLine(t, 0)
}
