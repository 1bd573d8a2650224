//go:build linux || darwin

package etcdkey

import (
	"context"
	"strings"
	"testing"

	"github.com/gatehousehq/gatehouse/internal/etcdtest"
)

// What was read before is not read again: the first report is a later change. If etcd has forgotten the
// changes since then, it is the key as it is.
func TestWatchAfterReading(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1)
	client := cluster.Client(t)
	if _, err := client.Put(t.Context(), "/k", "one"); err != nil {
		t.Fatal(err)
	}
	read := Read(t.Context(), cluster.URL("/k"))
	if _, err := client.Delete(t.Context(), "/k"); err != nil || string(read.Text) != "one" {
		t.Fatalf("read %q, and deleting it = %v, want one", read.Text, err)
	}
	later, err := client.Put(t.Context(), "/other", "")
	if err != nil {
		t.Fatal(err)
	}
	wantFirst := func(after Reading, want string) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		Watch(ctx, KeyWatch{
			Address: cluster.URL("/k"), After: after,
			Report: func(r Reading, _ bool) {
				if ctx.Err() == nil && (r.Err == nil || !strings.Contains(r.Err.Error(), want)) {
					t.Errorf("the first report is %q, %v, want %s", r.Text, r.Err, want)
				}
				cancel()
			},
		})
	}
	wantFirst(read, "was deleted")
	wantFirst(Reading{}, "does not exist")
	if _, err := client.Compact(t.Context(), later.Header.Revision); err != nil {
		t.Fatal(err)
	}
	wantFirst(read, "does not exist")
}
