package gate_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"pgregory.net/rapid"
)

// An action is something a client does at a time. Times are whole milliseconds, every wait ends at its
// own microsecond past one, intervals and expiries at nanoseconds past one, so that no two causes
// fall on one instant.
type action struct {
	at    time.Duration
	cmd   gatehouse.Command
	leave int // the action whose wait is given up; -1 for none
}

// model is a gate as one would write it first: whenever anything can have changed, the whole line is
// offered to the controller.
type model struct {
	kind    gatehouse.Kind
	state   control.State
	start   time.Time
	now     time.Duration
	line    []*waiting
	results map[int]result
	retry   time.Duration // when something can change by itself; Forever when nothing can
}

type waiting struct {
	id   int
	end  time.Duration
	turn control.Turn
}

// offer serves the whole line with newcomers behind it.
func (m *model) offer(newcomers ...*waiting) {
	m.line = append(m.line, newcomers...)
	queue := make([]control.Turn, len(m.line))
	for i, w := range m.line {
		if w.turn.MaxWait > 0 && w.end <= m.now {
			w.turn.MaxWait = 0
		}
		queue[i] = w.turn
	}
	m.state = control.Serve(m.start.Add(m.now), m.kind, m.state, queue)
	m.retry = gatehouse.Forever
	var stay []*waiting
	for i, w := range m.line {
		d := queue[i].Decision
		if d.Outcome != gatehouse.Refused || w.turn.MaxWait == 0 {
			m.results[w.id] = result{outcome: d.Outcome, after: m.now, count: 1}
			continue
		}
		if w.turn.Again = true; w.turn.Since.IsZero() {
			w.turn.Since = d.At
		}
		if len(stay) == 0 && d.RetryAfter != gatehouse.Forever {
			m.retry = m.now + d.RetryAfter
		}
		stay = append(stay, w)
	}
	m.line = stay
}

// advance lets time pass up to a moment, looking at the line whenever that may matter.
func (m *model) advance(to time.Duration) {
	for {
		next := to + 1
		if m.retry != gatehouse.Forever {
			next = m.retry
		}
		for _, w := range m.line {
			if w.turn.MaxWait > 0 {
				next = min(next, w.end)
			}
		}
		if next > to {
			m.now = to
			return
		}
		m.now = next
		m.offer()
	}
}

// leave takes a waiter out.
func (m *model) leave(id int) {
	i := slices.IndexFunc(m.line, func(w *waiting) bool { return w.id == id })
	if i < 0 {
		return
	}
	gone := m.line[i]
	m.line = slices.Delete(m.line, i, i+1)
	m.offer(&waiting{id: -1, turn: control.UndoOf(&gone.turn, nil)})
}

func (m *model) run(actions []action, end time.Duration) map[int]result {
	for id, a := range actions {
		m.advance(a.at)
		if a.leave >= 0 {
			m.leave(a.leave)
			continue
		}
		cmd := a.cmd
		turn := control.Turn{Command: &cmd, Ticket: control.Ticket(id + 1)}
		m.offer(&waiting{id: id, turn: turn, end: a.at + a.cmd.MaxWait})
	}
	m.advance(end)
	delete(m.results, -1)
	return m.results
}

// runReal does the same with a gate, in virtual time.
func runReal(t *testing.T, kind gatehouse.Kind, actions []action, end time.Duration) map[int]result {
	t.Helper()
	results := map[int]result{}
	synctest.Test(t, func(*testing.T) {
		g, l := newGate(), newLog()
		key := gatehouse.Key{Kind: kind, Name: "model"}
		cancels := map[int]func(){}
		for id, a := range actions {
			time.Sleep(a.at - time.Since(l.start))
			synctest.Wait()
			if a.leave < 0 {
				cancels[id] = submit(g, key, a.cmd, l.done(fmt.Sprint(id)))
			} else if l.get(fmt.Sprint(a.leave)).count == 0 && cancels[a.leave] != nil {
				cancels[a.leave]()
			}
		}
		time.Sleep(end - time.Since(l.start))
		synctest.Wait()
		for id := range actions {
			if r := l.get(fmt.Sprint(id)); r.count > 0 {
				results[id] = r
			}
		}
		g.Close()
		synctest.Wait()
	})
	return results
}

// drawActions makes up what clients do.
func drawActions(t *rapid.T, kind gatehouse.Kind) (actions []action) {
	at := time.Duration(0)
	for id := range rapid.IntRange(1, 40).Draw(t, "actions") {
		at += time.Duration(rapid.IntRange(0, 30).Draw(t, "later")) * time.Millisecond
		a := action{at: at, leave: -1}
		switch what := rapid.IntRange(0, 9).Draw(t, "what"); {
		case what == 0 && id > 0:
			a.leave = rapid.IntRange(0, id-1).Draw(t, "who")
		case what == 1:
			a.cmd.Op = gatehouse.OpDelete
		case what <= 3 && kind == gatehouse.Semaphore:
			a.cmd = release(fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "key")))
		default:
			a.cmd = drawAcquire(t, kind)
			if a.cmd.MaxWait > 0 {
				a.cmd.MaxWait += time.Duration(100+id) * time.Microsecond
			}
		}
		actions = append(actions, a)
	}
	return actions
}

func drawAcquire(t *rapid.T, kind gatehouse.Kind) gatehouse.Command {
	cmd := gatehouse.Command{Op: gatehouse.OpAcquire, Rule: gatehouse.Rule{Interval: 20*time.Millisecond + 7}}
	cmd.Size = rapid.Int64Range(0, 4).Draw(t, "size")
	cmd.Cost = rapid.Int64Range(1, max(1, cmd.Size)).Draw(t, "cost")
	if kind == gatehouse.Barrier {
		cmd.Op = gatehouse.OpWait
	}
	cmd.MaxWait = gatehouse.Forever
	if ms := rapid.IntRange(-1, 60).Draw(t, "maxwait"); ms == 0 {
		cmd.MaxWait = 0
	} else if ms > 0 {
		cmd.MaxWait = time.Duration(ms) * time.Millisecond
	}
	cmd.Holder = fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "key"))
	if ms := rapid.IntRange(0, 40).Draw(t, "expires"); ms > 0 {
		cmd.Expires = time.Duration(ms)*time.Millisecond + 13
	}
	return cmd
}

// TestAgainstTheModel: the clever gate, which offers little and wakes by timers, answers exactly as
// the obvious one, at the same times.
func TestAgainstTheModel(t *testing.T) {
	for _, kind := range []gatehouse.Kind{gatehouse.TokenBucket, gatehouse.Semaphore, gatehouse.Barrier} {
		t.Run(kind.String(), func(outer *testing.T) {
			rapid.Check(outer, func(t *rapid.T) {
				actions := drawActions(t, kind)
				end := actions[len(actions)-1].at + 500*time.Millisecond
				m := model{
					kind: kind, start: time.Now(), results: map[int]result{}, retry: gatehouse.Forever,
				}
				want := m.run(actions, end)
				got := runReal(outer, kind, actions, end)
				// Whether a delete finds something is the store's: it forgets what is worth nothing.
				for id, a := range actions {
					if a.cmd.Op == gatehouse.OpDelete {
						delete(got, id)
						delete(want, id)
					}
				}
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Fatalf("the gate answered\n%v\nwant\n%v\nfor %+v", got, want, actions)
				}
			})
		})
	}
}
