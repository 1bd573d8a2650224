package e2e

import (
	"encoding/json"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gatehousehq/gatehouse/internal/certstest"
	"github.com/gatehousehq/gatehouse/internal/redistest"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"go.yaml.in/yaml/v4"
)

const oneListener = `
jarl:
  - {listen: "127.0.0.1:0", name: n, requests: 10, period: 1s}
rules:
  - {match: "gcra/api-*", on-unreachable: allow}
`

// shownByAll is what three servers show that use each listener, stores of both sorts, and TLS.
func shownByAll(t *testing.T) (pages []string) {
	t.Helper()
	folder := t.TempDir()
	file, templates := filepath.Join(folder, "gatehouse.yaml"), filepath.Join(folder, "capacity.yaml")
	for path, text := range map[string]string{file: oneListener, templates: freeTemplates} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	onDisk := start(t, "--config", file, "--resp", "localhost:0", "--grpc", "localhost:0",
		"--capacity-config", templates, "--store", "disk:"+folder)
	onRedis := start(t, "--store", "redis://"+redistest.Start(t).Address)
	for _, s := range []*server{onDisk, onRedis} {
		s.want(t, "/v1/lock/l/acquire?key=a", "200 a")
		s.want(t, "/v1/lock/l/acquire?key=b&maxwait=50", "408")
		s.want(t, "/v1/lock/l/release?key=x", "409")
		s.want(t, "/v1/gcra/api-1/acquire?size=10&interval=60000&burst=9&cost=10", "204")
	}
	dialRedis(t, onDisk.redisAddress(t)).want("GH.COUNT counter/c", "1")
	if _, err := askJARL(t.Context(), onDisk.jarlAddress(t, "n")); err != nil {
		t.Fatal(err)
	}
	const wanted = `{"client_id":"c","resource":[{"resource_id":"r","wants":1}]}`
	response, err := http.Post("http://"+onDisk.address+"/v1/capacity/get", "application/json",
		strings.NewReader(wanted))
	if err != nil {
		t.Fatal(err)
	}
	if _ = response.Body.Close(); response.StatusCode != http.StatusOK {
		t.Fatalf("asking for a lease = %s, want 200", response.Status)
	}
	health := "localhost:" + freePort(t)
	ca := certstest.New(t)
	start(t, tlsFlags(ca.Server(), "--health", health, "--parent", "localhost:1", "--parent-ca", ca.File)...)
	overTLS := &server{address: health}
	return []string{
		onDisk.get(t, "/metrics").body, onRedis.get(t, "/metrics").body, overTLS.get(t, "/metrics").body,
		shownWithUsers(t),
	}
}

// shownWithUsers is what a server with users shows that has refused a right, and a wrong token.
func shownWithUsers(t *testing.T) string {
	t.Helper()
	file, config := filepath.Join(t.TempDir(), "users.yaml"), filepath.Join(t.TempDir(), "gatehouse.yaml")
	writeUsers(t, file, [2]string{"ci", `may: [{on: "lock/mine", do: use}]`},
		[2]string{"ops", `may: [{on: "*", do: manage}]`})
	if err := os.WriteFile(config, []byte(oneListener), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, "--users", file, "--config", config)
	for user, want := range map[string]int{"ci": http.StatusForbidden, "nobody": http.StatusUnauthorized} {
		got, text := s.ask(t, asked{method: "POST", path: "/v1/lock/l/acquire?key=k", token: canary + user})
		if got != want {
			t.Fatalf("an acquire by %s = %d %s, want %d", user, got, text, want)
		}
	}
	s.ask(t, asked{method: "POST", path: "/v1/lock/l/acquire?key=k", token: canary + "ops"})
	_, page := s.ask(t, asked{method: "GET", path: "/metrics", token: canary + "ops"})
	return page
}

const freeTemplates = `
resources:
  - identifier_glob: "*"
    capacity: 100
    algorithm: {kind: FAIR_SHARE, lease_length: 60, refresh_interval: 5, learning_mode_duration: 0}
`

// oddNames are metrics that have the names of doorman, which are not what Prometheus recommends.
var oddNames = []string{
	"doorman_server_requests", "doorman_server_request_errors", "doorman_server_request_durations",
}

// What is shown has the names that Prometheus recommends, and the same words for each protocol; the dashboard
// and the alerts ask for what is shown, and the page of all metrics has what there is.
func TestMonitoring(t *testing.T) {
	t.Parallel()
	pages := shownByAll(t)
	shown := families(strings.Join(pages, ""))
	t.Run("names", func(t *testing.T) { lintMetrics(t, pages) })
	t.Run("vocabulary", func(t *testing.T) {
		for _, want := range []string{
			`{kind="lock",op="acquire",outcome="granted",protocol="http"} 1`,
			`{kind="lock",op="acquire",outcome="refused",protocol="http"} 1`,
			`{kind="lock",op="release",outcome="conflict",protocol="http"} 1`,
			`{kind="counter",op="count",outcome="granted",protocol="resp"} 1`,
			`{kind="pace",op="reserve",outcome="granted",protocol="jarl"} 1`,
			`{kind="capacity",op="get",outcome="granted",protocol="http"} 1`,
		} {
			if !strings.Contains(pages[0], "gatehouse_requests_total"+want) {
				t.Errorf("there is no gatehouse_requests_total%s in\n%s", want, pages[0])
			}
		}
		const labels = `{kind="lock",op="acquire",protocol="http"}`
		if n := valueOf(t, pages[0], "gatehouse_request_waiting_seconds_count"+labels); n < 1 || n > 2 {
			t.Errorf("%v requests have waited, want one, or two when the disk was slow", n)
		}
		if s := valueOf(t, pages[0], "gatehouse_request_waiting_seconds_sum"+labels); s < 0.05 {
			t.Errorf("it waited %v s, want 50 ms and more", s)
		}
		if n := valueOf(t, pages[0], "gatehouse_request_handling_seconds_count"+labels); n != 2 {
			t.Errorf("%v requests were handled, want 2", n)
		}
	})
	t.Run("dashboard", func(t *testing.T) { checkDashboard(t, shown) })
	t.Run("alerts", func(t *testing.T) { checkAlerts(t, shown) })
	t.Run("access", func(t *testing.T) {
		for _, name := range []string{"dashboard.json", "alerts.yaml"} {
			text, err := os.ReadFile(monitoring + name)
			for _, metric := range accessMetrics {
				if err != nil || !strings.Contains(string(text), metric) || shown[metric] == nil {
					t.Errorf("%s does not ask for %s, or no server shows it: %v", name, metric, err)
				}
			}
		}
	})
	t.Run("page", func(t *testing.T) { checkMetricsPage(t, shown) })
}

// accessMetrics are those of users and certificates that the dashboard and the alerts must both ask for.
var accessMetrics = []string{
	"gatehouse_auth_failures_total", "gatehouse_user_rights_refused_total", "gatehouse_users_stale",
	"gatehouse_tls_stale", "gatehouse_tls_expiry_seconds", "gatehouse_outgoing_tls_stale",
}

// valueOf is what a page shows of one series.
func valueOf(t *testing.T, page, series string) float64 {
	t.Helper()
	_, rest, ok := strings.Cut(page, "\n"+series+" ")
	text, _, _ := strings.Cut(rest, "\n")
	value, err := strconv.ParseFloat(text, 64)
	if !ok || err != nil {
		t.Fatalf("there is no %s: %v in\n%s", series, err, page)
	}
	return value
}

func lintMetrics(t *testing.T, pages []string) {
	t.Helper()
	for _, page := range pages {
		problems, err := promlint.New(strings.NewReader(page)).Lint()
		if err != nil {
			t.Fatal(err)
		}
		for _, problem := range problems {
			if !slices.Contains(oddNames, problem.Metric) {
				t.Errorf("%s: %s", problem.Metric, problem.Text)
			}
		}
	}
}

const monitoring = "../../docs/monitoring/"

func read(t *testing.T, path string, unmarshal func([]byte, any) error, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err == nil {
		err = unmarshal(text, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func checkDashboard(t *testing.T, shown map[string]*family) {
	t.Helper()
	var dashboard struct {
		UID, Title string
		Panels     []struct {
			ID          int
			Type, Title string
			GridPos     struct{ H, W, X, Y int }
			Targets     []struct{ Expr, RefID string }
		}
	}
	read(t, monitoring+"dashboard.json", json.Unmarshal, &dashboard)
	ids, queries := make(map[int]bool), 0
	for _, panel := range dashboard.Panels {
		if ids[panel.ID] || panel.GridPos.X+panel.GridPos.W > 24 || panel.GridPos.H < 1 {
			t.Errorf("panel %q has number %d, which is taken %t, and the place %+v",
				panel.Title, panel.ID, ids[panel.ID], panel.GridPos)
		}
		ids[panel.ID] = true
		if (len(panel.Targets) == 0) != (panel.Type == "row") {
			t.Errorf("panel %q of type %s has %d queries", panel.Title, panel.Type, len(panel.Targets))
		}
		for _, target := range panel.Targets {
			queries++
			for _, fault := range checkPromQL(target.Expr, shown) {
				t.Errorf("panel %q: %s: %s", panel.Title, target.Expr, fault)
			}
		}
	}
	if queries < 10 || dashboard.UID == "" || dashboard.Title == "" {
		t.Errorf("dashboard %s %q has %d queries, want more", dashboard.UID, dashboard.Title, queries)
	}
}

func checkAlerts(t *testing.T, shown map[string]*family) {
	t.Helper()
	var rules struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	read(t, monitoring+"alerts.yaml", yaml.Unmarshal, &rules)
	names := make(map[string]bool)
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			if names[rule.Alert] || rule.Labels["severity"] == "" || rule.Annotations["summary"] == "" {
				t.Errorf("alert %q: taken %t, labels %v, annotations %v; want a name of its own and both",
					rule.Alert, names[rule.Alert], rule.Labels, rule.Annotations)
			}
			names[rule.Alert] = true
			for _, fault := range checkPromQL(rule.Expr, shown) {
				t.Errorf("alert %s: %s: %s", rule.Alert, rule.Expr, fault)
			}
		}
	}
	if len(names) < 10 {
		t.Errorf("there are %d alerts, want more", len(names))
	}
}

// checkMetricsPage compares the metrics with those that the documentation tells of.
func checkMetricsPage(t *testing.T, shown map[string]*family) {
	t.Helper()
	told := ""
	for _, path := range []string{"../../docs/metrics.md", "../../docs/operations.md"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		told += string(text)
	}
	for _, name := range slices.Sorted(maps.Keys(shown)) {
		own := strings.HasPrefix(name, "gatehouse_") || strings.HasPrefix(name, "doorman_")
		if own && shown[name].kind != "" && !strings.Contains(told, "`"+name+"`") {
			t.Errorf("no page tells of %s", name)
		}
	}
}

// Each file for monitoring is looked at by a test.
func TestMonitoringFiles(t *testing.T) {
	entries, err := fs.ReadDir(os.DirFS(monitoring), ".")
	if err != nil || len(entries) != 2 {
		t.Errorf("%s has %v, %v, want dashboard.json and alerts.yaml", monitoring, entries, err)
	}
}
