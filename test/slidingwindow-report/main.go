// Command slidingwindow-report shows how limiters that share their counts through Redis do: it answers
// requests by several of them and counts for Prometheus what they allow and deny.
//
//	go run ./test/slidingwindow-report -listen :8080 -load 50 -for 2m
//	curl localhost:8080/allow
//	curl localhost:8080/metrics
//
// Its flags and answers are those of the test utility of github.com/RussellLuo/slidingwindow; -load and
// -for are in place of a load generator.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gatehousehq/gatehouse/slidingwindow"
	"github.com/gatehousehq/gatehouse/slidingwindow/redisstore"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/rueidis"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := runReport(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "slidingwindow-report:", err)
		os.Exit(1)
	}
}

// A reportConfig is what the flags say.
type reportConfig struct {
	size, sync, length      time.Duration
	limit                   int64
	scale, load             int
	resource, redis, listen string
}

// maxLoad is more than one client, which makes one request after the other, comes to.
const maxLoad = 1_000_000

func parseFlags(arguments []string) (c reportConfig, err error) {
	flags := flag.NewFlagSet("slidingwindow-report", flag.ContinueOnError)
	flags.DurationVar(&c.size, "size", time.Second, "the length of the window")
	flags.Int64Var(&c.limit, "limit", 20, "how many requests are allowed in it")
	flags.DurationVar(&c.sync, "sync", 200*time.Millisecond, "how often a limiter exchanges its count")
	flags.IntVar(&c.scale, "scale", 2, "how many limiters there are")
	flags.StringVar(&c.resource, "resource", "test", "the name of what is limited")
	flags.StringVar(&c.redis, "redis", "localhost:6379", "the address of the Redis server")
	flags.StringVar(&c.listen, "listen", "", "the address to listen on; required")
	flags.IntVar(&c.load, "load", 0, "how many requests a second are made from within")
	flags.DurationVar(&c.length, "for", 0, "how long to run; 0 is until interrupted")
	if err := flags.Parse(arguments); err != nil {
		return c, err
	}
	// The values themselves are parsed. These would stop or crash it later.
	switch {
	case c.listen == "":
		return c, errors.New("flag -listen is missing, want an address such as :8080")
	case c.size < time.Millisecond || c.scale < 1 || c.load < 0 || c.sync < 0 || c.length < 0:
		return c, fmt.Errorf("-size %v, -scale %d, -load %d, -sync %v, -for %v: %s",
			c.size, c.scale, c.load, c.sync, c.length, "want at least 1ms, 1, 0, 0s, 0s")
	case c.load > maxLoad:
		return c, fmt.Errorf("-load %d, want at most %d", c.load, maxLoad)
	}
	return c, nil
}

// A countedLimiter is one of those that share their counts.
type countedLimiter struct {
	*slidingwindow.Limiter
	name            string
	stop            slidingwindow.StopFunc
	allowed, denied atomic.Int64
}

// A limiterReport answers requests and counts the answers.
type limiterReport struct {
	config   reportConfig
	limiters []*countedLimiter
	requests *prometheus.CounterVec
}

// runReport answers requests until ctx ends or as long as is asked for, and writes what came out.
func runReport(ctx context.Context, arguments []string, out io.Writer) error {
	c, err := parseFlags(arguments)
	if err != nil {
		return err
	}
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{c.redis}})
	if err != nil {
		return fmt.Errorf("redis at %s: %w", c.redis, err)
	}
	defer client.Close()
	listener, err := net.Listen("tcp", c.listen)
	if err != nil {
		return err
	}
	// The time counts from here: connecting to Redis is not part of it.
	if c.length > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.length)
		defer cancel()
	}
	r := &limiterReport{config: c}
	r.openLimiters(redisstore.New(client, 2*c.size))
	writef(out, "listening on %s\n", listener.Addr())
	server := &http.Server{Handler: r.newHandler(), ReadHeaderTimeout: time.Minute}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }() // ends with the server
	loaded := make(chan struct{})
	go func() { // ends with ctx
		defer close(loaded)
		r.makeRequests(ctx, "http://"+listener.Addr().String()+"/allow")
	}()
	select {
	case err = <-failed:
	case <-ctx.Done():
		<-loaded // so that each request of the load is answered and counted
		err = server.Close()
	}
	for _, l := range r.limiters {
		writef(out, "%s: %d allowed, %d denied\n", l.name, l.allowed.Load(), l.denied.Load())
		l.stop()
	}
	return err
}

// writef prints, and ignores the error of a reader that has gone.
func writef(w io.Writer, format string, values ...any) { _, _ = fmt.Fprintf(w, format, values...) }

// openLimiters makes the limiters.
func (r *limiterReport) openLimiters(store slidingwindow.Datastore) {
	// Each limiter has a window of its own for the one resource: they share only what Redis has.
	for i := range r.config.scale {
		l, stop := slidingwindow.NewLimiter(r.config.size, r.config.limit,
			func() (slidingwindow.Window, slidingwindow.StopFunc) {
				syncer := slidingwindow.NewBlockingSynchronizer(store, r.config.sync)
				return slidingwindow.NewSyncWindow(r.config.resource, syncer)
			})
		name := fmt.Sprintf("lim-%d", i)
		r.limiters = append(r.limiters, &countedLimiter{Limiter: l, name: name, stop: stop})
	}
}

func (r *limiterReport) newHandler() http.Handler {
	r.requests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "slidingwindow",
		Name:      "requests_total",
		Help:      "Requests by resource, by limiter and by whether they were allowed.",
	}, []string{"resource", "limiter", "allow"})
	registry := prometheus.NewRegistry()
	registry.MustRegister(r.requests)
	mux := http.NewServeMux()
	mux.HandleFunc("/allow", r.serveAllow)
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return mux
}

// serveAllow asks one of the limiters.
func (r *limiterReport) serveAllow(w http.ResponseWriter, _ *http.Request) {
	// As a load balancer would choose among servers that each have a limiter.
	l := r.limiters[rand.IntN(len(r.limiters))]
	ok := l.Allow()
	if ok {
		l.allowed.Add(1)
	} else {
		l.denied.Add(1)
	}
	r.requests.WithLabelValues(r.config.resource, l.name, strconv.FormatBool(ok)).Inc()
	writef(w, "%s: %v", l.name, ok)
}

// makeRequests makes requests at a steady rate until ctx ends.
func (r *limiterReport) makeRequests(ctx context.Context, address string) {
	if r.config.load == 0 {
		<-ctx.Done()
		return
	}
	// One after the other: a server that is slow gets fewer requests, and no queue of them.
	ticks := time.NewTicker(time.Second / time.Duration(r.config.load))
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
			sendRequest(ctx, address)
		}
	}
}

// sendRequest makes a request. Whether it was answered is seen in the counts.
func sendRequest(ctx context.Context, address string) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
}
