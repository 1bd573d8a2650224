package sim_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/store/cas"
)

// A call is a command that a client gave, and what became of it.
type call struct {
	client     string
	server     uint32
	key        gatehouse.Key
	cmd        gatehouse.Command
	begin, end time.Duration
	d          gatehouse.Decision
	err        error
	gone       bool // the client did not wait for the answer
	by         way
}

func (c *call) granted() bool { return c.err == nil && c.d.Outcome == gatehouse.Granted }

// decided reports whether the client got a decision.
func (c *call) decided() bool { return c.err == nil }

func (c *call) String() string {
	text := fmt.Sprintf("%s at %d%s: %s %q cost %d, waits %s: ", c.client, c.server, c.by, c.cmd.Op,
		c.cmd.Holder, c.cmd.Cost, c.cmd.MaxWait)
	if c.err != nil {
		return text + c.err.Error()
	}
	return text + fmt.Sprintf("%s, fence %d, value %d, at %s %s", c.d.Outcome, c.d.Fence, c.d.Value,
		c.d.At.Format("15:04:05.000000000"), c.d.Message)
}

// A change is a record as the store has it since an instant.
type change struct {
	at     time.Duration
	record []byte
}

// A violation is something that an oracle does not want.
type violation struct {
	oracle string
	key    gatehouse.Key
	text   string
}

// A history is all that happened, and what was wrong with it.
type history struct {
	started time.Time

	past    sync.Mutex
	calls   []*call
	grants  []*grantCall
	wanted  map[string][]gatehouse.Member // by each of them
	changes map[gatehouse.Key][]change
	events  []string // what went wrong, with its time
	losses  []time.Duration
	wrong   []violation
	truth   map[gatehouse.Key]*truth
}

func (h *history) begin(start time.Time) {
	h.started = start
	h.changes = make(map[gatehouse.Key][]change)
	h.truth = make(map[gatehouse.Key]*truth)
	h.wanted = make(map[string][]gatehouse.Member)
}

// now is the time since the beginning.
func (h *history) now() time.Duration { return time.Since(h.started) }

// noted notes something that happened to the fleet.
func (h *history) noted(format string, args ...any) {
	h.past.Lock()
	defer h.past.Unlock()
	h.events = append(h.events, line(h.now(), fmt.Sprintf(format, args...)))
}

func line(at time.Duration, text string) string {
	return fmt.Sprintf("%15.6f  %s", at.Seconds(), text)
}

// lost notes that the store may have lost something.
func (h *history) lost() {
	h.past.Lock()
	defer h.past.Unlock()
	h.losses = append(h.losses, h.now())
}

// violated notes what an oracle found.
func (h *history) violated(oracle string, key gatehouse.Key, format string, args ...any) {
	h.past.Lock()
	defer h.past.Unlock()
	h.complain(oracle, key, format, args...)
}

func (h *history) complain(oracle string, key gatehouse.Key, format string, args ...any) {
	same := 0 // a seed shows the first of each oracle, so that none hides what others find
	for _, v := range h.wrong {
		if v.oracle == oracle {
			same++
		}
	}
	if same < 10 {
		text := fmt.Sprintf(format, args...)
		h.wrong = append(h.wrong, violation{oracle, key, fmt.Sprintf("%.6f: %s", h.now().Seconds(), text)})
	}
}

// ended notes a call.
func (h *history) ended(c *call) {
	h.past.Lock()
	defer h.past.Unlock()
	h.calls = append(h.calls, c)
}

// A truth is what the store is known to hold under one name.
type truth struct {
	fences map[uint64]bool // that were ever granted
	last   uint64
}

// changed looks at every record that is written: at no instant may more be held than there is, and the
// fencing token of a new hold must be greater than all before it.
func (h *history) changed(key gatehouse.Key, record []byte) {
	h.past.Lock()
	defer h.past.Unlock()
	h.changes[key] = append(h.changes[key], change{h.now(), record})
	if record == nil || key.Kind != gatehouse.Semaphore && key.Kind != gatehouse.Lock {
		return
	}
	content, err := cas.ReadRecord(key.Kind, record, time.Time{})
	semaphore, ok := content.State.(*control.Semaphore)
	if err != nil || !ok {
		if err != nil {
			h.complain("record", key, "%v", err)
		}
		return
	}
	t := h.truth[key]
	if t == nil {
		t = &truth{fences: make(map[uint64]bool)}
		h.truth[key] = t
	}
	last, held, grew := t.last, int64(0), false
	for _, hold := range semaphore.Holds() {
		held += hold.Cost
		if t.fences[hold.Fence] {
			continue
		}
		grew, t.fences[hold.Fence] = true, true
		if hold.Fence <= last {
			h.complain("fence", key, "the store granted %d after %d", hold.Fence, last)
		}
		t.last = max(t.last, hold.Fence)
	}
	size := sizeOf(semaphore)
	if key.Name == "brief" && key.Kind != gatehouse.Lock { // it may have been made smaller in the same change
		size = max(size, slots)
	}
	if grew && held > size {
		h.complain("size", key, "the store holds %d of %d", held, size)
	}
}

// sizeOf is the size that is in force.
func sizeOf(s *control.Semaphore) (size int64) {
	turn := control.Turn{Command: &gatehouse.Command{Op: gatehouse.OpStats}}
	s.Step(time.Unix(0, 0), &turn)
	return turn.Decision.Limit
}

// tell is the history of a name, or of all of them for the zero key.
func (h *history) tell(of gatehouse.Key) string {
	type told struct {
		at   time.Duration
		text string
	}
	var all []told
	for _, c := range h.calls {
		if of != (gatehouse.Key{}) && c.key != of {
			continue
		}
		name := ""
		if of == (gatehouse.Key{}) {
			name = c.key.String() + " "
		}
		all = append(all, told{c.begin, fmt.Sprintf("%sto %.6f, %s", name, c.end.Seconds(), c)})
	}
	for _, g := range h.grants {
		all = append(all, told{g.begin, g.String()})
	}
	for _, key := range slices.Collect(maps.Keys(h.changes)) {
		for _, one := range h.changes[key] {
			if key == of {
				all = append(all, told{one.at, "    the store has " + stored(key, one.record)})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b told) int { return cmp.Compare(a.at, b.at) })
	lines := slices.Clone(h.events)
	for _, t := range all {
		lines = append(lines, line(t.at, t.text))
	}
	slices.Sort(lines) // their times stand in front, in a fixed width
	return strings.Join(lines, "\n")
}

// stored is a record in words.
func stored(key gatehouse.Key, record []byte) string {
	if record == nil {
		return "nothing"
	}
	content, err := cas.ReadRecord(key.Kind, record, time.Time{})
	if err != nil {
		return err.Error()
	}
	text := fmt.Sprintf("as of %s, %d heads", time.Unix(0, content.AsOf).UTC().Format("15:04:05.000000000"),
		content.Heads)
	if semaphore, ok := content.State.(*control.Semaphore); ok {
		return text + fmt.Sprintf(", %+v", semaphore.Holds())
	}
	return text + fmt.Sprintf(", %+v", content.State)
}
