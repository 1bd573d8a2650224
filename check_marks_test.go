package gatehouse_test

import (
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// What changes the direction of text may stand in no new name and no new key; in a message it may.
func TestDirectionMarks(t *testing.T) {
	const want = "has a mark that changes the direction of text"
	for _, mark := range []string{"\u061c", "\u200e", "\u200f", "\u202a", "\u202b", "\u202c", "\u202d",
		"\u202e", "\u2066", "\u2067", "\u2068", "\u2069"} {
		plain := gatehouse.Key{Kind: gatehouse.Lock, Name: "a"}
		marked := gatehouse.Key{Kind: gatehouse.Lock, Name: "txt" + mark + "exe"}
		for _, c := range []struct {
			key    gatehouse.Key
			op     gatehouse.Op
			holder string
			ok     bool
		}{
			{marked, gatehouse.OpAcquire, "h", false},
			{plain, gatehouse.OpAcquire, "h" + mark, false},
			{marked, gatehouse.OpRelease, "h" + mark, true},
			{marked, gatehouse.OpRenew, "h" + mark, true},
			{marked, gatehouse.OpStats, "", true},
			{marked, gatehouse.OpDelete, "", true},
		} {
			cmd := gatehouse.Command{Op: c.op, Holder: c.holder, Cost: 1, Expires: time.Minute}
			err := cmd.Check(c.key)
			if (err == nil) != c.ok || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s of %+q by %+q: %v, want it allowed: %t", c.op, c.key.Name, c.holder, err, c.ok)
			}
		}
		send := gatehouse.Command{Op: gatehouse.OpSend, Message: mark}
		if err := send.Check(gatehouse.Key{Kind: gatehouse.Event, Name: "e"}); err != nil {
			t.Errorf("a message %+q: %v, want it sent", mark, err)
		}
	}
	for _, name := range []string{"\u200d", "\u2030", "\u202f", "\u2060", "\u206a", "é\u2014"} {
		cmd := gatehouse.Command{Op: gatehouse.OpAcquire, Holder: name, Cost: 1}
		if err := cmd.Check(gatehouse.Key{Kind: gatehouse.Lock, Name: "a"}); err != nil {
			t.Errorf("a key %+q: %v, want it taken", name, err)
		}
	}
}
