package traces_test

import (
	"strings"
	"testing"

	"github.com/gatehousehq/gatehouse/internal/traces"
)

func TestCheckURL(t *testing.T) {
	for text, good := range map[string]bool{
		"http://localhost:4318": true, "https://collector.example/v1/traces": true, "http://[::1]:4318": true,
		"": false, "localhost:4318": false, "grpc://localhost:4317": false, "http://": false,
		"http:///v1": false, "http://localhost:4318?x=y": false, "http://local host": false,
	} {
		err := traces.CheckURL(text)
		if (err == nil) != good || err != nil && !strings.Contains(err.Error(), "http://localhost:4318") {
			t.Errorf("CheckURL(%q) = %v, want a fault: %t", text, err, !good)
		}
	}
}

func TestIsWanted(t *testing.T) {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"} {
		t.Setenv(name, "")
	}
	if traces.IsWanted("") || !traces.IsWanted("http://localhost:4318") {
		t.Error("traces are wanted without an address, or not with one")
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318")
	if !traces.IsWanted("") {
		t.Error("traces are not wanted, though the environment says where to send them")
	}
}
