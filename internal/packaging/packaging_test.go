// Package packaging_test looks at what people install: that it fits the program, and has one version.
package packaging_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gatehousehq/gatehouse/internal/certstest"
	"github.com/gatehousehq/gatehouse/internal/servertest"
	"go.yaml.in/yaml/v4"
)

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

// runTests runs the tests with a built program.
func runTests(m *testing.M) int {
	folder, err := os.MkdirTemp("", "gatehouse-packaging-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(folder) }()
	binary, err := servertest.Build(context.Background(), folder)
	if err == nil {
		err = os.Setenv(servertest.Variable, binary)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func readText(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.FromSlash(name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// find is the first group of a pattern in a file.
func find(t *testing.T, name, pattern string) string {
	t.Helper()
	found := regexp.MustCompile("(?m)" + pattern).FindStringSubmatch(readText(t, name))
	if found == nil {
		t.Fatalf("%s has no match of %s", name, pattern)
	}
	return found[1]
}

// words reads a list of words as JSON, as Docker and YAML write one.
func words(t *testing.T, list string) (all []string) {
	t.Helper()
	if err := json.Unmarshal([]byte(list), &all); err != nil {
		t.Fatalf("%s: %v", list, err)
	}
	return all
}

func decode(t *testing.T, what, text string, into any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%s: %v\n%s", what, err, text)
	}
}

// ask runs the program, and fails the test if it ends with another status.
func ask(t *testing.T, status int, environment []string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Getenv(servertest.Variable), args...)
	cmd.Env = append(os.Environ(), environment...)
	text, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != status {
		t.Errorf("gatehouse %s: %v, want status %d:\n%s", strings.Join(args, " "), err, status, text)
	}
	return string(text)
}

// The version of the program is a constant. What is packed takes it from there, and the clients in other
// languages write the same one in the way of their registries.
func TestOneVersion(t *testing.T) {
	version := find(t, "../../cmd/gatehouse/main.go", `^const version = "v(.+)"$`)
	plain := strings.NewReplacer(".dev0", "-dev", "-dev.0", "-dev")
	for name, pattern := range map[string]string{
		"../../clients/python/gatehouse/__init__.py": `^__version__ = "(.+)"$`,
		"../../clients/js/package.json":              `^  "version": "(.+)",$`,
	} {
		if got := plain.Replace(find(t, name, pattern)); got != version {
			t.Errorf("%s has version %s, want %s as the program", name, got, version)
		}
	}
	// These are set by the release. "0.0.0" is what it replaces.
	unset := find(t, "../tools/dist/bundles.go", `^const unset = "(.+)"$`)
	for name, pattern := range map[string]string{
		"chart/Chart.yaml": `^version: (.+)$`, "compose/compose.yaml": `image: gatehouse:(.+)$`,
	} {
		if got := find(t, name, pattern); got != unset {
			t.Errorf("%s has version %s, want %s, which make dist replaces", name, got, unset)
		}
	}
}

func TestService(t *testing.T) {
	const unit = "linux/gatehouse.service"
	start := strings.Fields(find(t, unit, `^ExecStart=/usr/bin/gatehouse (.+)$`))
	for i, word := range start {
		if word == "/etc/gatehouse/gatehouse.yaml" {
			start[i] = "linux/gatehouse.yaml"
		}
	}
	ask(t, 0, nil, append(start, "--check")...)
	for _, name := range []string{"linux/postinst", "linux/prerm"} {
		if text, err := exec.CommandContext(t.Context(), "sh", "-n", name).CombinedOutput(); err != nil {
			t.Errorf("sh -n %s: %v\n%s", name, err, text)
		}
	}
}

// The image that make dist writes is what the Dockerfile makes.
func TestImage(t *testing.T) {
	command := find(t, "Dockerfile", `^CMD \[(.+)\]$`)
	health := find(t, "Dockerfile", `^HEALTHCHECK .* CMD \[(.+)\]$`)
	image := readText(t, "../tools/dist/image.go")
	for _, want := range []string{
		"c.Config.Cmd = []string{" + command + "}", `health.Test = []string{"CMD", ` + health + "}",
		"c.Config.Entrypoint = []string{" + find(t, "Dockerfile", `^ENTRYPOINT \[(.+)\]$`) + "}",
		"const nobody = " + find(t, "Dockerfile", `^USER (\d+):\d+$`) + "\n",
	} {
		if !strings.Contains(image, want) {
			t.Errorf("image.go has no %q, as the Dockerfile wants it", want)
		}
	}
	ask(t, 0, nil, append(words(t, "["+command+"]"), "--check")...)
	ask(t, 0, nil, append(words(t, "["+health+"]")[1:], "--help")...)
	build := find(t, "Dockerfile", `^RUN CGO_ENABLED=0 go build (.+) -o /gatehouse`)
	if want := `-tags otel -trimpath -buildvcs=false -ldflags "-s -w"`; build != want {
		t.Errorf("the Dockerfile builds with %s, want %s as make dist", build, want)
	}
}

func TestCompose(t *testing.T) {
	var file struct {
		Services map[string]struct {
			Image   string
			Command []string
			Volumes []string
			Health  struct{ Test []string } `yaml:"healthcheck"`
		}
		Volumes map[string]any
	}
	decode(t, "compose.yaml", readText(t, "compose/compose.yaml"), &file)
	server := file.Services["gatehouse"]
	ask(t, 0, nil, append(server.Command, "--check")...)
	listen := words(t, "["+find(t, "Dockerfile", `^CMD \[(.+)\]$`)+"]")
	if !slices.Equal(server.Command[:len(listen)], listen) {
		t.Errorf("Compose begins with %q, want %q as the image", server.Command, listen)
	}
	ask(t, 0, nil, append(server.Health.Test[2:], "--help")...)
	mounted := make(map[string]bool)
	for name, service := range file.Services {
		if service.Image == "" {
			t.Errorf("%s has no image", name)
		}
		for _, volume := range service.Volumes {
			from, to, _ := strings.Cut(volume, ":")
			mounted[strings.TrimSuffix(to, ":ro")] = true
			if _, named := file.Volumes[from]; named {
				continue
			}
			var parsed any
			decode(t, from, readText(t, "compose/"+from), &parsed)
		}
	}
	var watching struct {
		Rules  []string `yaml:"rule_files"`
		Scrape []struct {
			Job    string                       `yaml:"job_name"`
			Static []struct{ Targets []string } `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	decode(t, "prometheus.yaml", readText(t, "compose/prometheus.yaml"), &watching)
	if !mounted[watching.Rules[0]] || watching.Scrape[0].Job != "gatehouse" ||
		watching.Scrape[0].Static[0].Targets[0] != "gatehouse:5505" {
		t.Errorf("Prometheus reads %+v, want the mounted rules and the service gatehouse:5505", watching)
	}
}

// With TLS and users Compose starts a server that is not insecure, and Prometheus and the health command ask
// where it answers in plain.
func TestComposeTLS(t *testing.T) {
	var file struct {
		Services map[string]struct {
			Command     []string
			Environment map[string]string
			Volumes     []string
		}
	}
	decode(t, "compose-tls.yaml", readText(t, "compose/compose-tls.yaml"), &file)
	server := file.Services["gatehouse"]
	folder := t.TempDir()
	pair := certstest.New(t).Server()
	for name, text := range map[string]string{
		"tls.crt": readText(t, pair.Cert), "tls.key": readText(t, pair.Key),
		"users.yaml": "users: [{name: anonymous, may: [{on: 'server/health', do: read}]}]",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if mount := "./" + name + ":/etc/gatehouse/" + name + ":ro"; !slices.Contains(server.Volumes, mount) {
			t.Errorf("Compose mounts %q, want %s", server.Volumes, mount)
		}
	}
	command := slices.Clone(server.Command)
	for i := range command {
		command[i] = strings.Replace(command[i], "/etc/gatehouse/", folder+"/", 1)
	}
	health := server.Environment["GATEHOUSE_HEALTH"]
	got := ask(t, 0, []string{"GATEHOUSE_HEALTH=" + health}, append(command, "--check")...)
	if slices.Contains(command, "--insecure") || health == "" {
		t.Errorf("Compose begins with %q and health at %q, which prints %s", command, health, got)
	}
	mount := file.Services["prometheus"].Volumes[0]
	from, _, _ := strings.Cut(mount, ":")
	if text := readText(t, "compose/"+from); !strings.Contains(text, `"gatehouse`+health+`"`) ||
		strings.ReplaceAll(text, health, ":5505") != readText(t, "compose/prometheus.yaml") {
		t.Errorf("Prometheus reads %s, want that of Compose without TLS, at %s", text, health)
	}
}

func TestHealth(t *testing.T) {
	var status atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(int(status.Load()))
		_, _ = fmt.Fprintln(w, r.URL.Path)
	}))
	address := strings.TrimPrefix(server.URL, "http://")
	for _, c := range []struct {
		served int32
		want   int
	}{{http.StatusOK, 0}, {http.StatusServiceUnavailable, 1}} {
		status.Store(c.served)
		got := ask(t, c.want, nil, "health", "--server", address)
		if !strings.HasPrefix(got, "/healthz\n") {
			t.Errorf("health prints %q, want what GET /healthz answers", got)
		}
	}
	server.Close()
	ask(t, 1, []string{"GATEHOUSE_SERVER=" + address}, "health")
	ask(t, 2, nil, "health", "now")
}

// Packages have a man page for each command, and completion for three shells.
func TestManual(t *testing.T) {
	folder := t.TempDir()
	ask(t, 0, nil, "man", folder)
	for _, name := range []string{
		"gatehouse", "gatehouse-serve", "gatehouse-capacity-get", "gatehouse-health",
	} {
		page := readText(t, filepath.Join(folder, name+".1"))
		for _, want := range []string{".TH ", ".SH NAME\n", ".SH SYNOPSIS\n", ".SH SEE ALSO\n"} {
			if !strings.Contains(page, want) {
				t.Errorf("%s.1 has no %q:\n%s", name, want, page)
			}
		}
	}
	const first = ".SH OPTIONS\n.TP\n" + `\fB\-\-http\fR`
	if page := readText(t, filepath.Join(folder, "gatehouse-serve.1")); !strings.Contains(page, first) {
		t.Errorf("gatehouse-serve.1 does not begin its flags with --http:\n%s", page)
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if got := ask(t, 0, nil, "completion", shell); !strings.Contains(got, "gatehouse") {
			t.Errorf("completion %s = %q, want a script", shell, got)
		}
	}
}
