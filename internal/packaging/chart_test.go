package packaging_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/template"

	"github.com/gatehousehq/gatehouse/internal/certstest"
	"go.yaml.in/yaml/v4"
)

// A manifest is an object of Kubernetes, as far as it is looked at.
type manifest struct {
	Kind     string
	Metadata struct {
		Name   string
		Labels map[string]string
	}
	Spec struct {
		Replicas       int
		MaxUnavailable int `yaml:"maxUnavailable"`
		Selector       any
		Template       struct {
			Metadata struct{ Labels map[string]string }
			Spec     struct {
				Containers []struct {
					Image string
					Args  []string
					Env   []struct{ Name, Value string }
					Live  probe `yaml:"livenessProbe"`
					Ready probe `yaml:"readinessProbe"`
				}
				Volumes []volume
			}
		}
		Claims    []any `yaml:"volumeClaimTemplates"`
		Endpoints []struct{ Port, Path string }
	}
	Data map[string]string
}

// A volume is one of a secret.
type volume struct {
	Name   string
	Secret struct {
		Name string `yaml:"secretName"`
		Mode int    `yaml:"defaultMode"`
	}
}

// A probe is one of Kubernetes.
type probe struct {
	Get struct{ Path, Port string } `yaml:"httpGet"`
}

// Each shape renders, and the server takes the flags and the variables that its pods have. Helm's own linter
// looks at the chart in make dist.
func TestChart(t *testing.T) {
	for _, c := range []struct {
		shape, values, kind string
		replicas            int
	}{
		{"disk", "", "StatefulSet", 1},
		{"redis", "values-redis.yaml", "Deployment", 3},
		{"elected", "values-elected.yaml", "Deployment", 3},
	} {
		t.Run(c.shape, func(t *testing.T) {
			objects := render(t, c.values, "serviceMonitor: {enabled: true}")
			kinds := slices.Sorted(maps.Keys(objects))
			want := []string{
				"ConfigMap", c.kind, "NetworkPolicy", "PodDisruptionBudget", "Service", "ServiceMonitor",
			}
			slices.Sort(want)
			if !slices.Equal(kinds, want) {
				t.Fatalf("it renders %q, want %q", kinds, want)
			}
			pods := objects[c.kind].Spec
			if pods.Replicas != c.replicas || (len(pods.Claims) == 1) != (c.shape == "disk") {
				t.Errorf("%d replicas and %d claims of a volume, want %d, and a claim on disk alone",
					pods.Replicas, len(pods.Claims), c.replicas)
			}
			if objects["PodDisruptionBudget"].Spec.MaxUnavailable != 1 ||
				objects["ServiceMonitor"].Spec.Endpoints[0].Path != "/metrics" {
				t.Errorf("the budget is %+v, the monitor %+v, want 1 and /metrics",
					objects["PodDisruptionBudget"].Spec, objects["ServiceMonitor"].Spec)
			}
			container := pods.Template.Spec.Containers[0]
			if container.Live.Get.Path != "/healthz" || container.Ready.Get.Path != "/readyz" {
				t.Errorf("probes are %+v and %+v, want /healthz and /readyz", container.Live, container.Ready)
			}
			checkPods(t, objects[c.kind], objects["ConfigMap"].Data["capacity.yaml"])
		})
	}
}

// With a secret for TLS the servers have its files, and are probed and scraped at the port without TLS.
func TestChartTLS(t *testing.T) {
	objects := render(t, "", "{serviceMonitor: {enabled: true}, tls: {secret: gatehouse-tls}}")
	container := objects["StatefulSet"].Spec.Template.Spec.Containers[0]
	for _, flag := range []string{
		"--tls-cert=/etc/gatehouse-tls/tls.crt", "--tls-key=/etc/gatehouse-tls/tls.key", "--health=:5508",
	} {
		if !slices.Contains(container.Args, flag) {
			t.Errorf("pods begin with %q, want %s among them", container.Args, flag)
		}
	}
	if container.Live.Get.Port != "health" || container.Ready.Get.Port != "health" ||
		objects["ServiceMonitor"].Spec.Endpoints[0].Port != "health" {
		t.Errorf("probes are at %+v and %+v, the monitor at %+v, want the port health",
			container.Live, container.Ready, objects["ServiceMonitor"].Spec.Endpoints)
	}
}

// With a secret of users the servers have its file and are not insecure, with TLS or behind a proxy that ends
// it.
func TestChartUsers(t *testing.T) {
	users := filepath.Join(t.TempDir(), "users.yaml")
	text := "users: [{name: anonymous, may: [{on: '*', do: read}]}]"
	if err := os.WriteFile(users, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	pair := certstest.New(t).Server()
	files := strings.NewReplacer("/etc/gatehouse-users/users.yaml", users,
		"/etc/gatehouse-tls/tls.crt", pair.Cert, "/etc/gatehouse-tls/tls.key", pair.Key)
	const flag = "--users=/etc/gatehouse-users/users.yaml"
	for _, values := range []string{
		readText(t, "chart/values-tls.yaml"),
		"{users: {secret: gatehouse-users}, flags: [--trusted-proxy=10.0.0.0/8]}",
	} {
		pod := render(t, "", values)["StatefulSet"].Spec.Template.Spec
		args := pod.Containers[0].Args
		if slices.Contains(args, "--insecure") || !slices.Contains(args, flag) {
			t.Errorf("%s: pods begin with %q, want --users and no --insecure", values, args)
		}
		mounted := slices.ContainsFunc(pod.Volumes, func(v volume) bool {
			return v.Name == "users" && v.Secret.Name == "gatehouse-users" && v.Secret.Mode == 0o440
		})
		if !mounted {
			t.Errorf("%s: pods have the volumes %+v, want the secret, for the group", values, pod.Volumes)
		}
		for i := range args {
			args[i] = files.Replace(args[i])
		}
		ask(t, 0, []string{"GATEHOUSE_ADVERTISE=10.0.0.7:5506"}, append(args, "--check")...)
	}
}

// checkPods has the program check what pods give it, with the file that they find.
func checkPods(t *testing.T, workload manifest, templates string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "capacity.yaml")
	if err := os.WriteFile(file, []byte(templates), 0o600); err != nil {
		t.Fatal(err)
	}
	container := workload.Spec.Template.Spec.Containers[0]
	args := slices.Clone(container.Args)
	for i := range args {
		args[i] = strings.Replace(args[i], "/etc/gatehouse/capacity.yaml", file, 1)
	}
	environment := []string{"POD_IP=10.0.0.7"}
	for _, variable := range container.Env {
		value := strings.Replace(variable.Value, "$(POD_IP)", "10.0.0.7", 1)
		environment = append(environment, variable.Name+"="+value)
	}
	ask(t, 0, environment, append(args, "--check")...)
	listen := words(t, "["+find(t, "Dockerfile", `^CMD \[(.+)\]$`)+"]")
	if !slices.Equal(container.Args[:len(listen)], listen) {
		t.Errorf("pods begin with %q, want %q as the image", container.Args, listen)
	}
}

// A shape that lacks what it needs says so.
func TestChartRefuses(t *testing.T) {
	for values, want := range map[string]string{
		"shape: redis":   "redis.url or redis.secret is needed",
		"shape: elected": "capacity is needed",
		"{shape: elected, capacity: 'resources: []'}": "etcd.endpoints is needed",
		"users: {secret: gatehouse-users}":            "users.secret needs tls.secret",
	} {
		var all error
		for _, err := range renderAll(t, "", values) {
			all = errors.Join(all, err)
		}
		if all == nil || !strings.Contains(all.Error(), want) {
			t.Errorf("%s: error %v, want %q", values, all, want)
		}
	}
}

// render renders the chart, and decodes its objects by their kinds.
func render(t *testing.T, file, further string) map[string]manifest {
	t.Helper()
	objects := make(map[string]manifest)
	for text, err := range renderAll(t, file, further) {
		if err != nil {
			t.Fatal(err)
		}
		if strings.TrimSpace(text) == "" {
			continue
		}
		var object manifest
		decode(t, "chart", text, &object)
		objects[object.Kind] = object
	}
	return objects
}

// renderAll renders each template of the chart with the values of a file and further ones.
func renderAll(t *testing.T, file, further string) map[string]error {
	t.Helper()
	values := make(map[string]any)
	decode(t, "values.yaml", readText(t, "chart/values.yaml"), &values)
	texts := []string{further}
	if file != "" {
		texts = append(texts, readText(t, "chart/"+file))
	}
	for _, text := range texts {
		var over map[string]any
		decode(t, "values", text, &over)
		merge(values, over)
	}
	var about map[string]string
	decode(t, "Chart.yaml", readText(t, "chart/Chart.yaml"), &about)
	all := template.New("chart").Option("missingkey=error")
	all.Funcs(chartFunctions(all))
	template.Must(all.ParseGlob("chart/templates/*"))
	rendered := make(map[string]error)
	for _, one := range all.Templates() {
		if !strings.HasSuffix(one.Name(), ".yaml") {
			continue
		}
		var text bytes.Buffer
		err := one.Execute(&text, map[string]any{
			"Values": values, "Release": map[string]string{"Name": "gatehouse", "Service": "Helm"},
			"Chart": map[string]string{
				"Name": about["name"], "Version": about["version"], "AppVersion": about["appVersion"],
			},
		})
		rendered[text.String()] = err
	}
	return rendered
}

// merge puts values over others, as Helm does.
func merge(values, over map[string]any) {
	for name, value := range over {
		below, isMap := values[name].(map[string]any)
		if above, ok := value.(map[string]any); ok && isMap {
			merge(below, above)
			continue
		}
		values[name] = value
	}
}

// chartFunctions are those of Helm that the chart uses, and no others.
func chartFunctions(all *template.Template) template.FuncMap {
	return template.FuncMap{
		"include": func(name string, data any) (string, error) {
			var text strings.Builder
			err := all.ExecuteTemplate(&text, name, data)
			return text.String(), err
		},
		"toYaml": func(value any) (string, error) {
			text, err := yaml.Marshal(value)
			return strings.TrimSuffix(string(text), "\n"), err
		},
		"nindent": func(n int, text string) string {
			indent := "\n" + strings.Repeat(" ", n)
			return indent + strings.ReplaceAll(text, "\n", indent)
		},
		"quote":      func(value any) string { return fmt.Sprintf("%q", fmt.Sprint(value)) },
		"trunc":      func(n int, text string) string { return text[:min(n, len(text))] },
		"contains":   func(part, text string) bool { return strings.Contains(text, part) },
		"trimSuffix": func(suffix, text string) string { return strings.TrimSuffix(text, suffix) },
		"sha256sum":  func(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) },
		"fail":       func(text string) (string, error) { return "", errors.New(text) },
		"required": func(text string, value any) (any, error) {
			if value == nil || value == "" {
				return nil, errors.New(text)
			}
			return value, nil
		},
		"default": func(usual, value any) any {
			if value == nil || value == "" {
				return usual
			}
			return value
		},
		"ternary": func(yes, no any, which bool) any {
			if which {
				return yes
			}
			return no
		},
	}
}
