package resp

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
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

	want := []string{
		"answers_total counter count invalid 1",
		"answers_total counter delete missing 1",
		"answers_total gcra acquire granted 1",
		"answers_total gcra acquire refused 1",
		"answers_total gcra peek granted 1",
		"answers_total gcra refund granted 1",
		"answers_total lock acquire granted 1",
		"answers_total lock release conflict 1",
		"answers_total none count invalid 1",
		"connections 1",
		"cuts_total 0",
		"faults_total 1",
		"hangups_total 1",
		"refused_connections_total 0",
		"waits_total 1",
	}
	if got := gather(t, registry); !slices.Equal(got, want) {
		t.Errorf("the figures are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// gather returns all figures: their names, labels and values.
func gather(t *testing.T, registry *prometheus.Registry) (figures []string) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			figures = append(figures, figure(family.GetName(), m))
		}
	}
	slices.Sort(figures)
	return figures
}

func figure(name string, m *dto.Metric) string {
	labels := map[string]string{}
	for _, label := range m.GetLabel() {
		labels[label.GetName()] = label.GetValue() + " "
	}
	return fmt.Sprintf("%s %s%s%s%v", strings.TrimPrefix(name, "gatehouse_resp_"),
		labels["kind"], labels["op"], labels["outcome"], m.GetCounter().GetValue()+m.GetGauge().GetValue())
}
