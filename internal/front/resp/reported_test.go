package resp

import (
	"strings"
	"testing"

	"github.com/gatehousehq/gatehouse/store/memory"
	"github.com/prometheus/client_golang/prometheus"
)

// A refusal for what a third party has reported says why once: a map has each of its names one time.
func TestReportedReasonIsToldOnce(t *testing.T) {
	c := openStore(t, Config{Metrics: prometheus.NewRegistry()}, memory.New(memory.Config{})).dial(t)
	c.ask("GH.FEEDBACK gcra/u SIZE 5 STATUS 429 RETRY-AFTER 60000")
	answer := c.ask("GH.ACQUIRE gcra/u SIZE 5 MAXWAIT 0 WITH DETAILS")
	if !strings.Contains(answer, "paused_with 429") || strings.Count(answer, "detail ") != 1 {
		t.Errorf("a refusal in a pause is %s, want its detail once", answer)
	}
}
