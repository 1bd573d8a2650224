package grpc

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"github.com/prometheus/client_golang/prometheus"
)

// Names that clients invent do not push the series of other resources out, and are cut.
func TestInventedNamesPushNoSeriesOut(t *testing.T) {
	registry := prometheus.NewRegistry()
	named := shared(capacity.FairShare, 10)
	named.Glob = "zz-named"
	s := start(t, Config{Metrics: registry}, named, shared(capacity.FairShare, 100))
	s.ask(t, "x", want("prod-a", 1), want("prod-b", 2))
	_ = figures(t, registry) // as at each scrape
	invent := func(round int) {
		var asks []*doormanpb.ResourceRequest
		for i := range maxSeries + 10 {
			name := fmt.Sprintf("!0000%d-%d", round, i)
			if i < 3 {
				name = strings.Repeat("!", 3*maxLabel) + name
			}
			asks = append(asks, want(name, 1))
		}
		s.ask(t, "hostile", asks...)
	}
	invent(1)
	expect(t, "with invented names", figures(t, registry), map[string]float64{
		`doorman_server_has{resource="prod-a"}`: 1, `doorman_server_has{resource="prod-b"}`: 2,
	})
	invent(2)
	s.ask(t, "x", want("zz-named", 3))
	got := figures(t, registry)
	expect(t, "with more of them", got, map[string]float64{
		`doorman_server_has{resource="prod-a"}`: 1, `doorman_server_has{resource="prod-b"}`: 2,
		`doorman_server_has{resource="zz-named"}`: 3,
	})
	count := 0
	for name := range got {
		if strings.HasPrefix(name, "doorman_server_has{") {
			count++
		}
		longest := len(`doorman_server_subclients{resource=""}`) + maxLabel
		if strings.HasPrefix(name, "doorman_server_") && len(name) > longest {
			t.Errorf("the series %s has %d bytes, want at most %d", name, len(name), longest)
		}
	}
	if count > maxSeries+1 {
		t.Errorf("there are %d series, want at most %d", count, maxSeries+1)
	}
}

// A page with leases of many priorities shows their sums and the first few, and ends by its bytes.
func TestPagesAreBounded(t *testing.T) {
	r := newWebRig(t, Config{})
	r.Configure(capacity.Templates{shared(capacity.FairShare, 100)}, "v1")
	const servers = 1000
	for i := range servers {
		c := r.newCall()
		c.client, c.server = fmt.Sprintf("%s%04d", strings.Repeat("<", gatehouse.MaxName-4), i), true
		for priority := range int64(maxBands) {
			c.demands = append(c.demands, capacity.Demand{Priority: priority, Clients: 2, Wants: 1})
		}
		c.addRequest(capacity.Request{Resource: "banded"}, maxBands)
		if _, err := r.answerCall(overGRPC, rpcGetServerCapacity, c); err != nil {
			t.Fatal(err)
		}
		r.freeCall(c)
	}
	var seen []string
	for after, more := "", true; more; more = after != "" {
		query := "?limit=1000&after=" + strings.ReplaceAll(after, "<", "%3C")
		var view struct {
			Next   string
			Leases []struct {
				Client string  `json:"client_id"`
				Total  float64 `json:"wants_total"`
				Bands  int
				Wants  []capacity.Demand
			}
		}
		readView(t, r, "/capacity/banded"+query+"&format=json", &view)
		if page := r.page(t, "/capacity/banded"+query); len(page) > 2*mostBytes {
			t.Fatalf("a page has %d bytes, want at most %d", len(page), 2*mostBytes)
		}
		for _, l := range view.Leases {
			if l.Bands != maxBands || l.Total != maxBands || len(l.Wants) != shownBands {
				t.Fatalf("a lease shows %d of %d bands, and %v in all, want %d of %d, and as many",
					len(l.Wants), l.Bands, l.Total, shownBands, maxBands)
			}
			seen = append(seen, l.Client)
		}
		after = view.Next
	}
	if len(slices.Compact(slices.Sorted(slices.Values(seen)))) != servers || len(seen) != servers {
		t.Errorf("all pages together show %d leases, want each of %d once", len(seen), servers)
	}
}
