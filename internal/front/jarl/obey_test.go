package jarl_test

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

// A crowd is clients that obey: they sleep for as long as they are told, call, think, and come again.
type crowd struct {
	clients, asks int
	think         time.Duration // on average
}

// run has the crowd ask l, and returns when they called, in order.
func (c crowd) run(t *testing.T, l *listener, random *rand.Rand) (calls []time.Duration) {
	t.Helper()
	pause := func() time.Duration { return time.Duration(random.ExpFloat64() * float64(c.think)) }
	next := make([]time.Duration, c.clients) // when each comes
	for i := range next {
		next[i] = pause()
	}
	for range c.asks {
		client := 0
		for i, at := range next {
			if at < next[client] {
				client = i
			}
		}
		now := next[client]
		l.set(now)
		start := now + delay(t, l.ask(t))
		if asksAgain := l.polls && start > now; asksAgain {
			next[client] = start
			continue
		}
		calls = append(calls, start)
		next[client] = start + pause()
	}
	slices.Sort(calls)
	return calls
}

// However many clients there are and however they come: when they obey, no second has more than n
// calls. And under load every second has n, as near as whole milliseconds allow.
func TestObedientClients(t *testing.T) {
	const n = 10
	for _, mode := range []string{"reserve", "paced", "classic", "poll"} {
		for name, c := range map[string]crowd{
			"few, seldom":  {clients: 5, asks: 1000, think: 2 * time.Second},
			"about enough": {clients: 50, asks: 1500, think: 5 * time.Second},
			"hundreds":     {clients: 400, asks: 3000, think: time.Second},
		} {
			t.Run(mode+" "+name, func(t *testing.T) {
				l := listen(t, n, mode)
				l.polls = mode == "poll"
				random := rand.New(rand.NewPCG(1, uint64(c.clients)))
				calls := c.run(t, l, random)
				for i := n; i < len(calls); i++ {
					if span := calls[i] - calls[i-n]; span < time.Second {
						t.Fatalf("call %d is %s after the one %d before it, want a second", i+1, span, n)
					}
				}
				took, most := calls[len(calls)-1].Seconds(), float64(len(calls))/n*1.01+2
				if c.clients == 400 && took > most {
					t.Errorf("%d calls took %.3f s, want no more than at %d a second", len(calls), took, n)
				}
			})
		}
	}
}

// Those who come at the same instant share out the places, each exactly once.
func TestAtOnce(t *testing.T) {
	const n, clients = 7, 500
	l := listen(t, n, "reserve")
	delays := make([]time.Duration, clients)
	var all sync.WaitGroup
	for i := range delays {
		all.Go(func() {
			answer, err := l.request(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			delays[i] = delay(t, answer)
		})
	}
	all.Wait()
	slices.Sort(delays)
	for i, got := range delays {
		if want := time.Duration(i/n) * time.Second; got != want {
			t.Fatalf("the delay of number %d = %s, want %s", i+1, got, want)
		}
	}
}
