package resp

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

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
answers_total{kind="counter",op="count",outcome="invalid"} 1
answers_total{kind="counter",op="delete",outcome="missing"} 1
answers_total{kind="gcra",op="acquire",outcome="granted"} 1
answers_total{kind="gcra",op="acquire",outcome="refused"} 1
answers_total{kind="gcra",op="peek",outcome="granted"} 1
answers_total{kind="gcra",op="refund",outcome="granted"} 1
answers_total{kind="lock",op="acquire",outcome="granted"} 1
answers_total{kind="lock",op="release",outcome="conflict"} 1
answers_total{kind="none",op="count",outcome="invalid"} 1
connections 1
cuts_total 0
faults_total 1
hangups_total 1
refused_connections_total 0
waits_total 1
`
	page := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page,
		httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	got := "\n"
	for line := range strings.Lines(page.Body.String()) {
		if figure, ok := strings.CutPrefix(line, "gatehouse_resp_"); ok {
			got += figure
		}
	}
	if got != want {
		t.Errorf("the figures are %swant %s", got, want)
	}
}
