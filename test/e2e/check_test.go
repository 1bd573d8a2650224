package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// mistakes are command lines and environments that a server does not start with, and what it says then. {}
// stands for the folder of settingsFolder.
var mistakes = []struct{ fact, env, args, want string }{
	{"no memory of that kind", "", "--store shelf", `…--store is "shelf"…`},
	{"a disk without a directory", "", "--store disk:", "…--store is disk: without a directory, want …"},
	{"a disk at a file", "", "--store disk:{}/good.yaml",
		"…--store is disk:{}/good.yaml, which is no directory\n"},
	{"a Redis without a host", "", "--store redis://", "…--store is no address: …there is no host…"},
	{"a certificate that is not there", "", "--store rediss://h/?ca={}/none",
		"…--store is no address: …none: no such…"},
	{"an etcd without a host", "", "--store etcd://",
		"…--store is no address: …etcd address: no host, want …"},
	{"an etcd of one slash", "", "--store etcd:/h/p",
		`…--store is no address: …scheme is "", want etcd://…`},
	{"a parameter of etcd", "", "--store etcd://h/p?q=1",
		`…--store is no address: …parameter "q" is unknown…`},
	{"a store by a misspelt scheme", "", "--store reddis://u:hush@h:1/?sentinel_password=hush",
		`…--store is "reddis://…@h:1/", want memory, …`},
	{"no time for the store", "", "--store-timeout 0s", "…--store-timeout is 0s, want 10ms to 1m0s…"},
	{"too much time for the store", "", "--store-timeout 2m",
		"…--store-timeout is 2m0s, want 10ms to 1m0s…"},
	{"no address", "", "--http= --resp= --grpc=", "…--http, --resp and --grpc are empty…"},
	{"an address without a port", "", "--http localhost",
		`…--http is "localhost", want a host and a port …`},
	{"an address that is none", "", "--http nonsense", `…--http is "nonsense", want a host and a port …`},
	{"an address of a host alone", "", "--resp 1.2.3.4", `…--resp is "1.2.3.4", want a host and a port …`},
	{"a port above all", "", "--grpc :65536", `…--grpc is ":65536", want a host and a port …`},
	{"a host of two words", "GATEHOUSE_HTTP=my/host:1", "",
		`…--http is "my/host:1", want a host and a port …`},
	{"two doors at one address", "", "--http 127.0.0.1:4000 --resp 127.0.0.1:4000",
		"…--resp 127.0.0.1:4000 and --http 127.0.0.1:4000 cannot …"},
	{"two doors at two names of one", "", "--grpc localhost:4000 --http 127.0.0.1:4000",
		"…--grpc localhost:4000 and --http 127.0.0.1:4000 cannot …"},
	{"a door at the default of another", "GATEHOUSE_RESP=localhost:5505", "",
		"…--resp localhost:5505 and --http localhost:5505 cannot …"},
	{"a door everywhere, where another is", "", "--http :4000 --resp localhost:4000",
		"…--resp localhost:4000 and --http :4000 cannot …"},
	{"a door where a listener is", "", "--http :4000 --config {}/jarl.yaml",
		"…the listener :4000 at {}/jarl.yaml:1:8 and --http :4000 cannot …"},
	{"an origin that is none", "", "--cors foo", `…--cors has "foo", want *, null or an origin such as …`},
	{"an origin with a path", "GATEHOUSE_CORS=https://a.example,https://b.example/", "",
		`…--cors has "https://b.example/", want …`},
	{"a certificate without a key", "", "--tls-cert {}/good.yaml",
		"…--tls-key is empty, and --tls-cert is not…"},
	{"a key without a certificate", "GATEHOUSE_TLS_KEY=x", "", "…--tls-cert is empty, and --tls-key is not…"},
	{"no certificate", "", "--tls-cert {}/none --tls-key {}/none", "…TLS: …{}/none: no such file…"},
	{"a file that is no certificate", "", "--tls-cert {}/good.yaml --tls-key {}/good.yaml",
		"…TLS: certificate {}/good.yaml with key {}/good.yaml: …failed to find any PEM…"},
	{"a strange way to ask", "", "--tls-client-auth maybe",
		`…--tls-client-auth is "maybe", want none, optional or require…`},
	{"certificates of clients without TLS", "", "--tls-client-auth require", "…which needs TLS…"},
	{"an authority for nothing", "", "--tls-client-ca x", "…no client is asked for a certificate…"},
	{"certificates for no parents", "", "--parent-ca x", "…--parent is empty, and there are certificates…"},
	{"a parent's authority that is not there", "", "--parent h:1 --parent-ca {}/none",
		"…TLS to parents: ca: …no such file…"},
	{"etcd's authority without a file", "", "--store etcd://h/p?ca=", "…ca is [\"\"], want one file…"},
	{"half a certificate for etcd", "", "--election etcd://h/p?cert=x",
		"…one of cert and key is given without…"},
	{"a limit of nothing", "", "--max-names 0", "…--max-names is not above 0…"},
	{"a limit below nothing", "", "--max-waiters -1", "…--max-waiters is not above 0…"},
	{"no line", "", "--max-line 0", "…--max-line is not above 0…"},
	{"no connections", "", "--max-connections 0", "…--max-connections is not above 0…"},
	{"a limit that is no number", "", "--max-names many", "…max-names…many…"},
	{"no time to read", "", "--read-timeout 0s", "…--read-timeout is not above 0…"},
	{"no time to write", "", "--write-timeout -1s", "…--write-timeout is not above 0…"},
	{"no time between requests", "", "--idle-timeout 0s", "…--idle-timeout is not above 0…"},
	{"a time without a unit", "", "--drain 10", "…drain…10…"},
	{"more than a hundred years", "", "--keep 1000000h", "…--keep is 1000000h…"},
	{"an unknown log level", "", "--log-level loud", `…--log-level is "loud", want debug, info, warn or …`},
	{"an unknown log format", "", "--log-format xml", `…--log-format is "xml", want text, json or auto…`},
	{"an unknown flag", "", "--no-such-flag", "…unknown flag: --no-such-flag…"},
	{"something besides", "", "now", "…now…"},
	{"a variable that is no number", "GATEHOUSE_MAX_NAMES=many", "",
		`…GATEHOUSE_MAX_NAMES is "many", want a whole number…`},
	{"a variable that is no time", "GATEHOUSE_KEEP=5", "",
		`…GATEHOUSE_KEEP is "5", want a time such as 500ms…`},
	{"a limit of nothing in the environment", "GATEHOUSE_MAX_LINE=0", "", "…--max-line is not above 0…"},
	{"a file in the environment", "GATEHOUSE_CONFIG={}/none.yaml", "",
		"…reading the configuration: …none.yaml…"},
	{"a port that is no number", "BOUNCER_PORT=http", "", `…BOUNCER_PORT is "http", want a port from 1 …`},
	{"no port", "BOUNCER_PORT=0", "", `…BOUNCER_PORT is "0"…`},
	{"a port too high", "BOUNCER_PORT=65536", "", `…BOUNCER_PORT is "65536"…`},
	{"an election elsewhere", "", "--election http://x/y",
		`…--election is no address: …scheme is "http://"…`},
	{"an election without a key", "", "--election etcd://h", "…--election is no address: …no key…"},
	{"an election that is too quick", "", "--election etcd://h/k?ttl=1ms",
		"…--election is no address: …ttl is …"},
	{"an election under no name", "", "--election etcd://h/k --advertise " + strings.Repeat("h", 512) + ":1",
		"…--advertise has 514 bytes, want at most 512…"},
	{"templates of one slash", "", "--capacity-config etcd:/x", `…capacity configuration: …scheme is ""…`},
	{"templates elsewhere", "GATEHOUSE_CAPACITY_CONFIG=http://h/k", "",
		`…capacity configuration: source begins …`},
	{"templates that are not there", "", "--capacity-config {}/none.yaml",
		"…capacity configuration: …none.yaml…"},
	{"templates with a fault", "", "--capacity-config {}/bad.yaml", "…bad.yaml:1:13: resources is …"},
	{"leases in no folder", "", "--capacity-leases {}/none/leases", "…reading saved leases: …none…"},
	{"leases that are a folder", "", "--capacity-leases {}", "…reading saved leases: …is a directory…"},
	{"leases with an election", "", "--election etcd://h/k --capacity-leases {}/leases",
		"…--capacity-leases cannot be used with --election…"},
	{"a parent without a port", "", "--parent h", `…--parent has "h", want hosts and ports…`},
	{"capacity without its door", "", "--grpc= --parent h:1",
		"…--grpc is empty, which switches capacity off…"},
}

// settingsFolder is a folder with files that settings name.
func settingsFolder(t *testing.T) (folder string) {
	t.Helper()
	folder = t.TempDir()
	for name, text := range map[string]string{
		"good.yaml": "resources: [{identifier_glob: '*', capacity: 1,\n" +
			"  algorithm: {kind: FAIR_SHARE, lease_length: 60, refresh_interval: 5}}]\n",
		"bad.yaml":  "resources:  7\n",
		"jarl.yaml": "jarl: [{listen: ':4000', name: a, requests: 1, period: 1s}]\n",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// Every setting with which serve would end is refused by --check, in the same words.
func TestMistakesEndTheServer(t *testing.T) {
	t.Parallel()
	folder := settingsFolder(t)
	for _, m := range mistakes {
		t.Run(m.fact, func(t *testing.T) {
			t.Parallel()
			in := strings.NewReplacer("{}", folder).Replace
			want, env := in(m.want), strings.Fields(in(m.env))
			args := append([]string{"serve"}, strings.Fields(in(m.args))...)
			status, out, said := gatehouse(t, env, args...)
			if status == 0 || !matches(want, said) || strings.Count(said, "\n") != 1 {
				t.Errorf("%s serve %s ended with %d and said %q, want not 0 and one line like %q",
					m.env, m.args, status, said, want)
			}
			if out != "" {
				t.Errorf("it wrote %q to standard output, want nothing", out)
			}
			checked, out, text := gatehouse(t, env, append(args, "--check")...)
			if checked != status || text != said || out != "" {
				t.Errorf("with --check it ended with %d, wrote %q and said %q, want %d and serve's words %q",
					checked, out, text, status, said)
			}
		})
	}
}

// What serve runs with is valid to --check.
func TestCheckTakesWhatServeTakes(t *testing.T) {
	t.Parallel()
	folder := settingsFolder(t)
	for _, c := range []struct{ env, args string }{
		{"", ""},
		{"", "--insecure --http :0 --resp :0 --grpc 127.0.0.1:0"},
		{"", "--resp= --grpc="},
		{"GATEHOUSE_CORS=*", ""},
		{"", "--cors null,https://a.example,http://[::1]:8080"},
		{"", "--store disk:{}/new/store --capacity-leases {}/leases --capacity-config {}/good.yaml"},
		{"", "--capacity-config file:{}/good.yaml --advertise gatehouse-1:5506"},
		{"", "--store redis://127.0.0.1:1/ --store-timeout 10ms"},
		{"", "--store etcd://127.0.0.1:1"},
		{"", "--election etcd://127.0.0.1:1/k?ttl=1s --capacity-config etcd://127.0.0.1:1/c"},
		{"", "--parent localhost:1,[::1]:2 --parent-name me"},
		{"GATEHOUSE_KEEP=1h GATEHOUSE_LOG_LEVEL=debug BOUNCER_LOGLEVEL=whatever", "--log-format text"},
	} {
		in := strings.NewReplacer("{}", folder).Replace
		env, flags := strings.Fields(in(c.env)), strings.Fields(in(c.args))
		status, out, said := gatehouse(t, env, append([]string{"serve", "--check"}, flags...)...)
		if status != 0 || out != "the settings are valid\n" || said != "" {
			t.Errorf("%s serve --check %s ended with %d, wrote %q and said %q, want that all is valid",
				c.env, c.args, status, out, said)
		}
		if !strings.Contains(c.args, "--http") {
			flags = append(flags, "--http", "localhost:0")
		}
		s, err := launch(t.Context(), settings{flags: flags, env: env})
		if err != nil {
			t.Fatalf("%s serve %s: %v", c.env, c.args, err)
		}
		if err := s.stop(); err != nil {
			t.Errorf("%s serve %s: %v", c.env, c.args, err)
		}
	}
}

// What depends on the moment is not tried: the machine may be another one.
func TestCheckTriesNothing(t *testing.T) {
	t.Parallel()
	for _, address := range []string{shared().address, "192.0.2.1:80"} {
		status, _, said := gatehouse(t, nil, "serve", "--insecure", "--http", address)
		if status == 0 || !matches("…listening for HTTP…", said) {
			t.Errorf("serve --http %s ended with %d and said %q, want not 0 and why", address, status, said)
		}
		status, _, said = gatehouse(t, nil, "serve", "--check", "--insecure", "--http", address)
		if status != 0 {
			t.Errorf("serve --check --http %s ended with %d and said %q, want 0", address, status, said)
		}
	}
}
