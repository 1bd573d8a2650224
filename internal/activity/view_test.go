package activity

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A prefixView sees names with a prefix, without it.
type prefixView string

func (v prefixView) Show(key gatehouse.Key) (shown gatehouse.Key, ok bool) {
	key.Name, ok = strings.CutPrefix(key.Name, string(v))
	return key, ok
}

func (v prefixView) Head(kind gatehouse.Kind) (string, bool) {
	return string(v), kind != gatehouse.Counter
}

// Viewers see the names of their view alone, by the names that it gives them, and no sums over others. A view
// that ends gets nothing any more.
func TestFramesOfViews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, g := newMonitor(nil)
		take(t, g, "blue/a")
		take(t, g, "red/a")
		var blue, again, red, all reader
		var ended atomic.Bool
		view := func(v View) func() (View, bool) { return func() (View, bool) { return v, !ended.Load() } }
		for r, v := range map[*reader]View{
			&blue: prefixView("blue/"), &again: prefixView("blue/"), &red: prefixView("red/"), &all: nil,
		} {
			stop, ok := m.Follow("", view(v), r.send, r.end)
			if !ok {
				t.Fatal("a viewer was refused")
			}
			t.Cleanup(stop)
		}
		m.Watch(all.id(t), []gatehouse.Key{key("blue/a"), key("red/a")})
		time.Sleep(time.Second)
		synctest.Wait()
		for _, r := range []*reader{&blue, &red} {
			got := string(r.last())
			if strings.Contains(got, "blue") || strings.Contains(got, "red/") ||
				strings.Count(got, `"name":"a"`) != 1 || strings.Contains(got, `"viewers"`) {
				t.Errorf("a frame of a view is %s, want a alone and no sums", got)
			}
		}
		if got := string(all.last()); !strings.Contains(got, `"name":"blue/a"`) ||
			!strings.Contains(got, `"name":"red/a"`) || !strings.Contains(got, `"viewers":4`) {
			t.Errorf("a frame of everything is %s, want both names and the sums", got)
		}
		if &blue.last()[0] != &again.last()[0] {
			t.Error("viewers with the same view were sent frames of their own, want one for both")
		}
		ended.Store(true)
		before := string(blue.last())
		time.Sleep(3 * time.Second)
		if string(blue.last()) != before {
			t.Errorf("a view that has ended was sent %s", blue.last())
		}
	})
}

// A search finds what its view shows, by any part of the name that its viewer knows, and in every order.
func TestSearchOfViews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, g := newMonitor(nil)
		for _, name := range []string{"blue/b", "blue/a", "red/a", "blueish", "a"} {
			take(t, g, name)
		}
		for _, sort := range Sorts() {
			for text, want := range map[string]string{"": "a b", "a": "a", "lu": "", "blue": ""} {
				q := Query{Sort: sort, Text: text, Limit: 10, View: prefixView("blue/")}
				for range 2 { // the second time from memory
					wantShown(t, m, q, want)
				}
			}
		}
		found, err := m.Search(t.Context(), Query{Sort: sortName, Limit: 10})
		if err != nil || len(found.Shown(nil)) != 5 {
			t.Errorf("everything is %v, %v, want 5 names", found.Rows, err)
		}
	})
}

// wantShown wants names from a search, in this order.
func wantShown(t *testing.T, m *Monitor, q Query, want string) {
	t.Helper()
	found, err := m.Search(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, row := range found.Shown(q.View) {
		names = append(names, row.Key.Name)
	}
	if got := strings.Join(names, " "); got != want {
		t.Errorf("sort %s, search %q: %q, want %q", q.Sort, q.Text, got, want)
	}
}

// A viewer of very many names leaves others their part of each frame.
func TestFramesAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newMonitor(nil)
		var greedy, modest reader
		for _, r := range []*reader{&greedy, &modest} {
			stop, _ := m.Follow("", seesAll, r.send, r.end)
			t.Cleanup(stop)
		}
		var many []gatehouse.Key
		for i := range 2 * maxFrameRows {
			many = append(many, key(fmt.Sprint("greedy", i)))
		}
		m.Watch(greedy.id(t), many)
		m.Watch(modest.id(t), []gatehouse.Key{key("modest-1"), key("modest-2")})
		time.Sleep(time.Second)
		synctest.Wait()
		got := string(modest.last())
		if rows := strings.Count(got, `"name":`); rows != maxFrameRows || !strings.Contains(got, "modest-2") {
			t.Errorf("a frame has %d rows, modest-2 among them: %t; want %d, and true", rows,
				strings.Contains(got, "modest-2"), maxFrameRows)
		}
	})
}

// One user cannot take the streams of all others. Without users there are no shares.
func TestFollowIsShared(t *testing.T) {
	m, _ := newMonitor(nil)
	defer m.Close()
	var r reader
	follow := func(user string, want gatehouse.Code) (stop func()) {
		t.Helper()
		err := m.CheckRoom(user)
		stop, ok := m.Follow(user, seesAll, r.send, r.end)
		if gatehouse.CodeOf(err) != want || ok != (err == nil) {
			t.Fatalf("with %d viewers %q = %v, %v, want %v", m.Viewers(), user, ok, err, want)
		}
		return stop
	}
	stop := follow("a", 0)
	for range MaxUserViewers - 1 {
		follow("a", 0)
	}
	follow("a", gatehouse.CodeQuota)
	follow("b", 0)
	stop()
	follow("a", 0)
	for m.Viewers() < MaxViewers {
		follow("", 0)
	}
	follow("b", gatehouse.CodeExhausted)
}
