package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehousehq/gatehouse/internal/certstest"
)

// When a file for TLS to parents, Redis or etcd is replaced by one that cannot be used, the log and a metric
// show it at once, before any connection needs the file. They also show when it can be used again.
func TestOutgoingTLSStale(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string]string{
		"parents":   "--parent localhost:1 --parent-ca FILE",
		"store":     "--store rediss://localhost:1?ca=FILE",
		"templates": "--capacity-config etcd://localhost:1/capacity?ca=FILE",
		"election":  "--election etcd://localhost:1/master?ca=FILE",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ca, file := certstest.New(t), filepath.Join(t.TempDir(), "ca.pem")
			ca.CopyTo(file)
			s := start(t, strings.Fields(strings.ReplaceAll(flags, "FILE", file))...)
			stale := func(want string) {
				t.Helper()
				page := s.get(t, "/metrics").body
				if !strings.Contains(page, "\ngatehouse_outgoing_tls_stale "+want) {
					t.Errorf("gatehouse_outgoing_tls_stale is not %s", want)
				}
			}
			stale("0")
			if err := os.WriteFile(file, []byte("half of an authority"), 0o600); err != nil {
				t.Fatal(err)
			}
			line := awaitLine(t, s.journal, "the files for TLS to other servers cannot be used")
			if !strings.Contains(line, file+" has no certificate in PEM form") {
				t.Errorf("the log says %s, want what is wrong with %s", line, file)
			}
			stale("1")
			ca.CopyTo(file)
			awaitLine(t, s.journal, "the files for TLS to other servers can be used")
			stale("0")
		})
	}
}
