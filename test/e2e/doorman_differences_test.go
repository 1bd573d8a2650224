package e2e

import (
	"strings"
	"testing"
)

// What the page about doorman says of its paths, flags and environment.
func TestDifferencesFromDoorman(t *testing.T) {
	t.Parallel()
	s := startWith(t, settings{
		flags: []string{"--http", "localhost:0", "--capacity-config", writeTemplates(t, templates)},
		env: []string{
			"DOORMAN_PORT=tcp://10.0.0.1:3667", "DOORMAN_DEBUG_PORT=none", "DOORMAN_CONFIG=nowhere.yml",
		},
	})
	for path, to := range map[string]string{
		"/debug/status":                                "/capacity",
		"/debug/resources":                             "/capacity",
		"/debug/resources/":                            "/debug/resources",
		"/debug/resources?resource=a%20b/%0Ac":         "/capacity?resource=a+b%2F%0Ac",
		"/debug/resources?resource=x&resource=&more=1": "/capacity?resource=x",
	} {
		status := 301
		if path == "/" {
			status = 302 // what is there may change
		}
		if a := s.get(t, path); a.status != status || a.header.Get("Location") != to {
			t.Errorf("%s = %s to %s, want %d to %s", path, a, a.header.Get("Location"), status, to)
		}
	}
	s.want(t, "/", "302")
	for _, path := range []string{
		"/debug/vars", "/debug/requests", "/debug/events", "/debug/pprof/", "/debug/pprof/heap", "/debug",
		"/anything",
	} {
		s.want(t, path, "404")
	}
	s.want(t, "/capacity?resource=proportional", "404")
	newHolder(s.dialGRPC(t), "somebody").gets(t, 1)
	s.want(t, "/capacity?resource=proportional", "200 …somebody…")
	if text := s.get(t, "/metrics").body; !strings.Contains(text, "\ngo_goroutines ") {
		t.Error("the metrics have nothing of the Go runtime")
	}
	status, _, said := gatehouse(t, nil, "serve", "--check", "--capacity-config", "etcd:/gatehouse/capacity")
	if status == 0 || !strings.Contains(said, "etcd") {
		t.Errorf("--capacity-config etcd:/gatehouse/capacity ended with %d and said %q, want not 0 and why",
			status, said)
	}
	for _, flag := range []string{
		"--port=1", "--debug_port=1", "--config=x", "--tls", "--etcd_endpoints=a:1", "--master_delay=1s",
	} {
		if status, _, _ := gatehouse(t, nil, "serve", flag); status == 0 {
			t.Errorf("serve %s ended with 0, want that it is refused", flag)
		}
	}
}
