package resp

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

func TestMetrics(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	d := open(t, Config{Metrics: registry})
	c, other := d.dial(t), d.dial(t)
	for _, command := range []string{
		"CL.THROTTLE a 0 1 60", "CL.THROTTLE a 0 1 60", "CL.THROTTLE a 0 1 60 0", "CL.THROTTLE a 0 1 60 -1",
		"GH.ACQUIRE lock/l KEY k", "GH.RELEASE lock/l KEY j", "GH.COUNT counter/ AMOUNT 1",
		"GH.COUNT things/c", "GH.DELETE counter/nobody",
	} {
		c.ask(command)
	}
	other.send(wire("GH.ACQUIRE", "lock/l", "KEY", "j"))
	d.inLine(t, 1)
	_ = other.Close()
	d.inLine(t, 0)
	fault := d.dial(t)
	fault.send("*x\r\n")
	fault.answer()
	fault.over()
	until(t, "all but one are gone", func() bool { return d.open.Load() == 1 })

	const want = `
gatehouse_connections_cut_total{protocol="resp",reason="malformed"} 1
gatehouse_connections_cut_total{protocol="resp",reason="slow"} 0
gatehouse_connections_refused_total{protocol="resp"} 0
gatehouse_connections{protocol="resp"} 1
gatehouse_hangups_total{protocol="resp"} 1
gatehouse_request_handling_seconds_count{kind="counter",op="count",protocol="resp"} 1
gatehouse_request_handling_seconds_count{kind="counter",op="delete",protocol="resp"} 1
gatehouse_request_handling_seconds_count{kind="gcra",op="acquire",protocol="resp"} 2
gatehouse_request_handling_seconds_count{kind="gcra",op="peek",protocol="resp"} 1
gatehouse_request_handling_seconds_count{kind="gcra",op="refund",protocol="resp"} 1
gatehouse_request_handling_seconds_count{kind="lock",op="acquire",protocol="resp"} 1
gatehouse_request_handling_seconds_count{kind="lock",op="release",protocol="resp"} 1
gatehouse_request_handling_seconds_count{kind="none",op="count",protocol="resp"} 1
gatehouse_request_waiting_seconds_count{kind="lock",op="acquire",protocol="resp"} 1
gatehouse_requests_total{kind="counter",op="count",outcome="invalid",protocol="resp"} 1
gatehouse_requests_total{kind="counter",op="delete",outcome="missing",protocol="resp"} 1
gatehouse_requests_total{kind="gcra",op="acquire",outcome="granted",protocol="resp"} 1
gatehouse_requests_total{kind="gcra",op="acquire",outcome="refused",protocol="resp"} 1
gatehouse_requests_total{kind="gcra",op="peek",outcome="granted",protocol="resp"} 1
gatehouse_requests_total{kind="gcra",op="refund",outcome="granted",protocol="resp"} 1
gatehouse_requests_total{kind="lock",op="acquire",outcome="granted",protocol="resp"} 1
gatehouse_requests_total{kind="lock",op="release",outcome="conflict",protocol="resp"} 1
gatehouse_requests_total{kind="none",op="count",outcome="invalid",protocol="resp"} 1
`
	if got := "\n" + shown(registry); got != want {
		t.Errorf("the figures are %swant %s", got, want)
	}
}

// shown returns the lines that Prometheus reads, but for sums and buckets, which depend on the clock.
func shown(registry *prometheus.Registry) string {
	page := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page,
		httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	var lines []string
	for line := range strings.Lines(page.Body.String()) {
		name, _, _ := strings.Cut(line, "{")
		timed := strings.HasSuffix(name, "_bucket") || strings.HasSuffix(name, "_sum")
		if !timed && !strings.HasPrefix(name, "#") {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// An instant keeps microseconds, from the first on; the zero instant is none.
func TestInstant(t *testing.T) {
	if at, ok := (instant{}).sinceStart(); ok {
		t.Errorf("the zero instant is %v, want none", at)
	}
	for _, d := range []time.Duration{0, 1, 1000, 1999, 65_536_000, time.Hour + 7, 5 * 365 * 24 * time.Hour} {
		if at, ok := newInstant(d).sinceStart(); !ok || at != d.Truncate(time.Microsecond) {
			t.Errorf("an instant of %v is %v, %t; want it to the microsecond", d, at, ok)
		}
	}
}
