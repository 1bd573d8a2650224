package disk

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// names is how many names of each kind a sample has.
const names = 16

// A sample is a small file with something of every kind in it, and what it says.
func sample(t *testing.T) (file []byte, says map[gatehouse.Key]string) {
	t.Helper()
	dir := t.TempDir()
	s := must(t, dir, Config{Reserve: 1})
	for i := range names {
		for kind := gatehouse.Kind(1); int(kind) < gatehouse.Kinds; kind++ {
			key := gatehouse.Key{Kind: kind, Name: strings.Repeat("x", i) + fmt.Sprint("name ", i)}
			if kind == gatehouse.Grant {
				grant(t, s, gatehouse.GrantCommand{
					Op: gatehouse.OpAcquire, ID: key.Name[i:4+i] + fmt.Sprint(i), Expires: time.Hour,
					Want: []gatehouse.Member{
						{
							Key:  gatehouse.Key{Kind: gatehouse.SlidingLog, Name: "of grants"},
							Rule: gatehouse.Rule{Size: 100, Interval: time.Hour}, Cost: 1,
						},
					},
				})
				continue
			}
			op := map[gatehouse.Kind]gatehouse.Op{
				gatehouse.Event: gatehouse.OpSend, gatehouse.Watchdog: gatehouse.OpKick,
				gatehouse.Counter: gatehouse.OpCount, gatehouse.Barrier: gatehouse.OpWait,
			}[kind]
			if op == 0 {
				op = gatehouse.OpAcquire
			}
			size := int64(i + 1)
			if kind == gatehouse.Barrier {
				size = 1
			}
			for h := range 1 + i%3 {
				do(t, s, key, gatehouse.Command{
					Op: op, Holder: fmt.Sprint("holder ", h), Rule: gatehouse.Rule{
						Size:     size,
						Interval: time.Hour,
					}, Cost: 1, Amount: 5, Expires: time.Hour, Message: strings.Repeat("m", 100*i),
				})
			}
		}
	}
	end(t, s)
	file, err := os.ReadFile(filepath.Join(dir, fileName))
	if err != nil {
		t.Fatal(err)
	}
	file = written(s, file)
	says, err = readBytes(file)
	const all = names*(gatehouse.Kinds-1) + 1 // and the limiter of the grants
	if err != nil || len(says) != all {
		t.Fatalf("%d names, %v, want %d", len(says), err, all)
	}
	return file, says
}

// written is the part of a store's file that was ever written, which ends soon after what was used.
func written(s *Store, file []byte) []byte {
	return file[:min(int64(len(file)), s.fileSize.Load()+4<<12)]
}

// readBytes is what a file says, or the first thing that is wrong with it.
func readBytes(file []byte) (map[gatehouse.Key]string, error) {
	l := newFileScan()
	l.onFault, l.onProgress = func(fault error) error { return fault }, func(uint64) {}
	if err := l.readRecords(bytes.NewReader(file), int64(len(file))); err != nil {
		return nil, err
	}
	says := make(map[gatehouse.Key]string, len(l.states))
	for key, state := range l.states {
		says[key] = string(control.Encode(nil, state))
	}
	return says, l.checkComplete()
}

// same reports whether what is read is what was written, or nothing and why.
func same(t *testing.T, file []byte, want map[gatehouse.Key]string) (good bool) {
	t.Helper()
	got, err := readBytes(file)
	if err != nil {
		return false
	}
	for key, says := range want {
		if got[key] != says {
			t.Errorf("%s says %q, want %q", key, got[key], says)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d names, want %d", len(got), len(want))
	}
	return true
}

// openBytes opens a store on a damaged file in which nothing was found wrong, and uses it.
func openBytes(t *testing.T, file []byte) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, fileName), file, 0o600); err != nil {
		t.Fatal(err)
	}
	s := must(t, dir, Config{Reserve: 1})
	do(t, s, lock("name 0"), release("holder 0"))
	do(t, s, lock("new"), acquire("k"))
	end(t, s)
}

// livePages are the pages of a file that say something; the others are free.
func livePages(t *testing.T, file []byte) (live []int) {
	t.Helper()
	for page := 0; page < len(file); page += 1 << 12 {
		place := page
		if page < 2<<12 {
			place += 16 // a head says who it is further on
		}
		file[place] ^= 1
		if _, err := readBytes(file); err != nil {
			live = append(live, page)
		}
		file[place] ^= 1
	}
	if _, err := readBytes(file); err != nil || len(live) < 8 || 2*len(live) > len(file)>>12 {
		t.Fatalf("%d pages of %d live, %v, want some, and some that are free", len(live), len(file)>>12, err)
	}
	return live
}

// checks counts the damaged files that were tried.
type checks struct {
	want     map[gatehouse.Key]string
	openEach int // every so manieth in which nothing is wrong is used by a store

	cases, read int
}

func (c *checks) try(t *testing.T, file []byte) {
	t.Helper()
	c.cases++
	if !same(t, file, c.want) {
		return
	}
	c.read++
	if c.read%c.openEach == 0 {
		openBytes(t, file)
	}
}

func (c *checks) tell(t *testing.T) {
	t.Helper()
	t.Logf("%d cases: %d did not matter, the others were found", c.cases, c.read)
}

// allVariable has every byte changed, and not only one of forty-one.
const allVariable = "TEST_ALL_BYTES"

// Whichever bit changes in a file: it is read as it was written, or not at all.
func TestChangedBits(t *testing.T) {
	file, want := sample(t)
	c := checks{want: want, openEach: 200}
	step := 97
	if os.Getenv(allVariable) != "" {
		step = 1
	}
	for _, page := range livePages(t, file) {
		for at := page; at < page+1<<12; at += step {
			file[at] ^= 1 << (at % 8)
			c.try(t, file)
			file[at] ^= 1 << (at % 8)
		}
	}
	c.tell(t)
}

// The same for a file that was cut off, or of which a part was never written or is another part.
func TestTornFiles(t *testing.T) {
	file, want := sample(t)
	c := checks{want: want, openEach: 50}
	live := livePages(t, file)
	for _, page := range live {
		for at := page; at < page+1<<12; at += 128 {
			c.try(t, file[:at])
			part := bytes.Clone(file[at : at+64])
			clear(file[at : at+64])
			c.try(t, file)
			copy(file[at:], part)
		}
		whole := bytes.Clone(file[page : page+1<<12])
		for _, other := range live {
			if other != page {
				copy(file[page:page+1<<12], file[other:])
				c.try(t, file)
				copy(file[page:], whole)
			}
		}
	}
	for at := 0; at < len(file); at += 512 {
		c.try(t, file[:at])
	}
	c.tell(t)
}

// Pages of an older time are not taken for the present ones. Of the two heads that cannot be seen: with both
// as they were the file is what it was then.
func TestOldPages(t *testing.T) {
	dir := t.TempDir()
	s := must(t, dir, Config{Reserve: 1})
	path := filepath.Join(dir, fileName)
	var files [][]byte
	for i := range 40 {
		do(t, s, lock(fmt.Sprint("lock ", i)), acquire("k"))
		file, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	end(t, s)
	newest := written(s, files[len(files)-1])
	want, err := readBytes(newest)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, old := range files[:len(files)-1] {
		for page := 2 << 12; page < min(len(old), len(newest)); page += 1 << 12 {
			if bytes.Equal(old[page:page+1<<12], newest[page:page+1<<12]) {
				continue
			}
			mixed := bytes.Clone(newest)
			copy(mixed[page:page+1<<12], old[page:page+1<<12])
			if !same(t, mixed, want) {
				found++
			}
		}
	}
	if found < 50 {
		t.Errorf("%d files with an old page were found, want some dozen", found)
	}
}

// A damaged file is refused by a sentence that says where and what to do, and goes on without what is
// damaged when that is asked for. The file as it was is kept.
func TestDrop(t *testing.T) {
	file, want := sample(t)
	dir := t.TempDir()
	damaged := bytes.ReplaceAll(file, []byte(strings.Repeat("m", 200)), []byte(strings.Repeat("M", 200)))
	if err := os.WriteFile(filepath.Join(dir, fileName), damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Open(dir, small())
	path := filepath.Join(dir, fileName)
	for _, part := range []string{path, `in bucket "event" is damaged`, "check --drop"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("Open = %v, want %s in it", err, part)
		}
	}
	r, err := Check(dir)
	if err != nil || len(r.Faults) == 0 ||
		r.Names[gatehouse.Lock] != names || r.Names[gatehouse.Event] == names {
		t.Fatalf("Check = %+v, %v, want all locks and not all events", r, err)
	}
	r, err = Drop(dir)
	if err != nil || r.Old == "" {
		t.Fatalf("Drop = %+v, %v", r, err)
	}
	kept, err := os.ReadFile(r.Old)
	if err != nil || !bytes.Equal(kept, damaged) {
		t.Errorf("the file as it was is not kept: %v", err)
	}
	s := must(t, dir, small())
	if got := s.Len(); got != len(want)-names+r.Names[gatehouse.Event] {
		t.Errorf("%d names are left, want all but some events", got)
	}
	if _, err := Check(dir); err == nil {
		t.Error("a file that is open was checked")
	}
	end(t, s)
	if r, err := Drop(dir); err != nil || len(r.Faults) != 0 || r.Old != "" {
		t.Errorf("Drop of a good file = %+v, %v, want nothing done", r, err)
	}
}

// Everything that a store keeps is dumped.
func TestDump(t *testing.T) {
	file, want := sample(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, fileName), file, 0o600); err != nil {
		t.Fatal(err)
	}
	var last gatehouse.Key
	n := 0
	r, err := Dump(dir, func(_ time.Time, key gatehouse.Key, state control.State) error {
		if n > 0 && (key.Kind < last.Kind || key.Kind == last.Kind && key.Name <= last.Name) {
			t.Errorf("%s after %s", key, last)
		}
		if got := string(control.Encode(nil, state)); got != want[key] {
			t.Errorf("%s says %q, want %q", key, got, want[key])
		}
		last = key
		n++
		return nil
	})
	if err != nil || n != len(want) || len(r.Faults) != 0 {
		t.Errorf("%d names, %v, %v, want %d", n, r.Faults, err, len(want))
	}
	if _, err := Dump(t.TempDir(), nil); err == nil {
		t.Error("a directory without a store was dumped")
	}
}
