package e2e

import (
	"strings"
	"testing"
	"time"

	root "github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/store/disk"
)

// What an earlier version stored under a name that is refused now is there after an upgrade, and can be given
// up.
func TestStoredDirectionMarks(t *testing.T) {
	t.Parallel()
	dir, key := t.TempDir(), root.Key{Kind: root.Lock, Name: "txt\u202eexe"}
	store, err := disk.Open(dir, disk.Config{})
	if err != nil {
		t.Fatal(err)
	}
	acquire := &root.Command{Op: root.OpAcquire, Holder: "me\u200f", Cost: 1, Expires: time.Hour}
	change := control.Change{Key: key, Turns: []control.Turn{{Command: acquire}}}
	if err := change.ApplyTo(store); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	s := start(t, "--store", "disk:"+dir)
	const path = "/v1/lock/txt%E2%80%AEexe"
	s.want(t, path+"/stats", `200 …"held":1,…`)
	if list := s.get(t, "/v1/lock"); !strings.Contains(list.body, "txt") {
		t.Errorf("the names are %s, want the one of an earlier version", list)
	}
	refused := s.get(t, path+"/acquire?key=you&maxwait=0")
	const want = `400 Bad Request: lock: name "txt\u202eexe" has a mark that changes the direction of text`
	if refused.String() != want {
		t.Errorf("an acquire under such a name = %s, want %s", refused, want)
	}
	s.want(t, path+"/release?key=me%E2%80%8F", "204")
	s.want(t, "DELETE "+path, "204")
}
