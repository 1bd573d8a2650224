//go:build linux || darwin

package etcdkey

import (
	"testing"

	"github.com/gatehousehq/gatehouse/internal/etcdtest"
)

// A watch that etcd cannot go on with, because it has forgotten what was, begins anew without a failure.
func TestAWatchThatEtcdCannotContinueBeginsAnew(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1)
	client := cluster.Client(t)
	var last int64
	for range 3 {
		answer, err := client.Put(t.Context(), "/k", "")
		if err != nil {
			t.Fatal(err)
		}
		last = answer.Header.Revision
	}
	if _, err := client.Compact(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	w := new(KeyWatch)
	if why, err := w.watchKey(t.Context(), etcdKey{client, "/k"}, 1); why != causeChanged || err != nil {
		t.Errorf("watch = cause %d, %v, want %d, changed, without an error", why, err, causeChanged)
	}
}
