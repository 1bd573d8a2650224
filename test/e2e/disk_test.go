package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// killsVariable is how often the server is killed in TestKillsLoseNothing.
const killsVariable = "TEST_KILLS"

// A witness is a client that notes what it was told. Nobody else uses its locks and its holds.
type witness struct {
	name   string
	client http.Client
	random *rand.Rand

	locks  map[string]uint64 // held, by name, with the fencing token
	fences map[string]uint64 // the last of each lock
	slots  map[string]bool   // keys of holds of the common semaphore; false for one that was released
	sent   map[string]bool   // events
	doubt  string            // what was asked when the server was killed, and may have happened or not
	least  int64             // by how much the common counter was counted up
	most   int64             // and with what was not answered
	errors []string

	answers *atomic.Int64 // to all witnesses
}

func newWitness(i int) *witness {
	return &witness{
		name: fmt.Sprint("witness-", i), client: http.Client{Timeout: patience},
		random: rand.New(rand.NewPCG(uint64(i), 3)), // a number of a test
		locks:  map[string]uint64{}, fences: map[string]uint64{}, slots: map[string]bool{},
		sent: map[string]bool{},
	}
}

// ask is one request. The status is 0 when there was no answer.
func (w *witness) ask(address, request string) (status int, fence uint64) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+request, http.NoBody)
	if err != nil {
		return 0, 0
	}
	answer, err := w.client.Do(r)
	if err != nil {
		return 0, 0
	}
	_, err = io.Copy(io.Discard, answer.Body)
	_ = answer.Body.Close()
	if err != nil {
		return 0, 0
	}
	fence, _ = strconv.ParseUint(answer.Header.Get("Gatehouse-Fence"), 10, 64)
	return answer.StatusCode, fence
}

func (w *witness) complain(format string, args ...any) {
	w.errors = append(w.errors, w.name+": "+fmt.Sprintf(format, args...))
}

// work does one thing after another until an answer does not come.
func (w *witness) work(address string) {
	for w.step(address) {
		w.answers.Add(1)
		w.doubt = ""
	}
}

func (w *witness) step(address string) (answered bool) {
	switch w.random.IntN(4) {
	case 0:
		return w.useLock(address)
	case 1:
		return w.useSlot(address)
	case 2:
		w.most++
		status, _ := w.ask(address, "/v1/counter/common/count")
		if status == http.StatusOK {
			w.least++
		}
		return status != 0
	default:
		event := fmt.Sprintf("%s-event-%d", w.name, w.random.IntN(1_000_000))
		if w.sent[event] {
			return true
		}
		status, _ := w.ask(address, "/v1/event/"+event+"/send")
		if status == http.StatusNoContent || status == http.StatusOK {
			w.sent[event] = true
		}
		return status != 0
	}
}

// useLock releases one of the witness's locks that it holds, and acquires one that it does not.
func (w *witness) useLock(address string) (answered bool) {
	name := fmt.Sprintf("%s-lock-%d", w.name, w.random.IntN(5))
	place := "/v1/lock/" + name
	w.doubt = name
	if w.locks[name] != 0 {
		status, _ := w.ask(address, place+"/release?key="+w.name)
		switch status {
		case 0:
			return false
		case http.StatusNoContent:
		default:
			w.complain("release of %s = %d, want 204", name, status)
		}
		delete(w.locks, name)
		return true
	}
	status, fence := w.ask(address, place+"/acquire?expires=0&maxwait=0&key="+w.name)
	switch {
	case status == 0:
		return false
	case status != http.StatusOK:
		w.complain("acquire of %s = %d, want 200", name, status)
	case fence <= w.fences[name]:
		w.complain("%s has the fencing token %d after %d", name, fence, w.fences[name])
	}
	w.locks[name], w.fences[name] = fence, fence
	return true
}

// useSlot acquires or releases a hold of the common semaphore.
func (w *witness) useSlot(address string) (answered bool) {
	const place = "/v1/semaphore/common"
	for key, held := range w.slots {
		if !held || w.random.IntN(2) == 0 {
			continue
		}
		w.doubt = key
		status, _ := w.ask(address, place+"/release?key="+key)
		if status != 0 && status != http.StatusNoContent {
			w.complain("release of %s = %d, want 204", key, status)
		}
		if status != 0 {
			w.slots[key] = false
		}
		return status != 0
	}
	key := fmt.Sprintf("%s-%d", w.name, w.random.Int64())
	w.doubt = key
	status, _ := w.ask(address, place+"/acquire?size=1000000&expires=0&maxwait=0&key="+key)
	if status != 0 && status != http.StatusOK {
		w.complain("acquire of %s = %d, want 200", key, status)
	}
	if status != 0 {
		w.slots[key] = true
	}
	return status != 0
}

// settle finds out what became of what the witness had asked when the server was killed, and checks that
// what it was told is still so.
func (w *witness) settle(address string) {
	if w.doubt != "" {
		delete(w.locks, w.doubt)
		delete(w.slots, w.doubt)
		w.ask(address, "/v1/semaphore/common/release?key="+w.doubt)
		if strings.Contains(w.doubt, "-lock-") {
			w.ask(address, "/v1/lock/"+w.doubt+"/release?key="+w.name)
		}
		w.doubt = ""
	}
	for i := range 5 {
		name := fmt.Sprintf("%s-lock-%d", w.name, i)
		place := "/v1/lock/" + name
		if fence := w.locks[name]; fence != 0 {
			if status, _ := w.ask(address, place+"/acquire?maxwait=0&key=other"); status != 408 {
				w.complain("%s is held, and another acquire = %d, want 408", name, status)
			}
			if _, got := w.ask(address, place+"/renew?expires=0&key="+w.name); got != fence {
				w.complain("%s is held with the fencing token %d, want %d", name, got, fence)
			}
			continue
		}
		status, fence := w.ask(address, place+"/acquire?maxwait=0&key=other")
		if status != http.StatusOK || fence <= w.fences[name] {
			w.complain("%s was released, and another acquire = %d with %d after %d, want 200 and more",
				name, status, fence, w.fences[name])
		}
		w.fences[name] = max(fence, w.fences[name])
		w.ask(address, place+"/release?key=other")
	}
	for event := range w.sent {
		if w.random.IntN(20) != 0 {
			continue
		}
		if status, _ := w.ask(address, "/v1/event/"+event+"/wait?maxwait=0"); status != http.StatusNoContent {
			w.complain("%s was sent, and a wait = %d, want 204", event, status)
		}
	}
}

// Whenever the server is killed: no hold that was acknowledged is lost, no release undone, no count and
// no event forgotten, and fencing tokens rise.
func TestKillsLoseNothing(t *testing.T) {
	t.Parallel()
	kills, err := strconv.Atoi(os.Getenv(killsVariable))
	if err != nil {
		kills = 10
	}
	dir := t.TempDir()
	witnesses := make([]*witness, 8)
	var answers atomic.Int64
	for i := range witnesses {
		witnesses[i] = newWitness(i)
		witnesses[i].answers = &answers
	}
	flags := []string{"--http", "localhost:0", "--store", "disk:" + dir}
	random := rand.New(rand.NewPCG(1, 4)) // when to kill
	for range kills {
		s, err := launch(context.WithoutCancel(t.Context()), settings{flags: flags})
		if err != nil {
			t.Fatal(err)
		}
		together(witnesses, func(w *witness) { w.settle(s.address) })
		checkCounter(t, s, witnesses)
		killed, least := make(chan struct{}), answers.Load()+random.Int64N(600)
		go func() {
			defer close(killed)
			until(t, "some are answered", func() bool { return answers.Load() >= least })
			_ = s.process.Kill()
		}()
		together(witnesses, func(w *witness) { w.work(s.address) })
		<-killed
		if _, err := s.exit(); err != nil {
			t.Fatal(err)
		}
		checkDump(t, dir, witnesses)
	}
	done := 0
	for _, w := range witnesses {
		for _, complaint := range w.errors {
			t.Error(complaint)
		}
		done += len(w.slots) + len(w.sent) + int(w.least)
	}
	t.Logf("%d kills, more than %d changes acknowledged", kills, done)
	s := startWith(t, settings{flags: flags})
	together(witnesses, func(w *witness) { w.settle(s.address) })
}

func together(witnesses []*witness, do func(w *witness)) {
	var all sync.WaitGroup
	for _, w := range witnesses {
		all.Go(func() { do(w) })
	}
	all.Wait()
}

// checkCounter checks the common counter, and takes what it says for what was counted.
func checkCounter(t *testing.T, s *server, witnesses []*witness) {
	t.Helper()
	least, most := int64(0), int64(0)
	for _, w := range witnesses {
		least, most = least+w.least, most+w.most
	}
	value, err := strconv.ParseInt(s.get(t, "/v1/counter/common/value").body, 10, 64)
	if err != nil || value < least || value > most {
		t.Errorf("the counter is at %d, %v, want %d to %d", value, err, least, most)
	}
}

// checkDump checks by the file which holds there are.
func checkDump(t *testing.T, dir string, witnesses []*witness) {
	t.Helper()
	status, out, said := gatehouse(t, nil, "data", "dump", "--kind", "semaphore", dir)
	if status != 0 {
		t.Fatalf("data dump ended with %d and said %q", status, said)
	}
	var dumped struct{ Holds []struct{ Holder string } }
	if out != "" {
		if err := json.Unmarshal([]byte(out), &dumped); err != nil {
			t.Fatalf("data dump printed %q: %v", out, err)
		}
	}
	there := map[string]bool{}
	for _, hold := range dumped.Holds {
		there[hold.Holder] = true
	}
	for _, w := range witnesses {
		for key, held := range w.slots {
			if key != w.doubt && there[key] != held {
				t.Errorf("%s is in the file: %t, want %t", key, there[key], held)
			}
		}
	}
}

// A full disk is told with 503, which names it; what is held is released; and when there is room again
// everything goes on.
func TestFullDiskIsTold(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, "--store", "disk:"+dir)
	s.want(t, "/v1/lock/l/acquire?key=k&expires=0", "200")
	s.want(t, "/v1/counter/c/count", "200 1")
	limit := func(size uint64) {
		t.Helper()
		var old unix.Rlimit
		if err := unix.Prlimit(s.process.Pid, unix.RLIMIT_FSIZE, nil, &old); err != nil {
			t.Fatal(err)
		}
		old.Cur = min(size, old.Max)
		if err := unix.Prlimit(s.process.Pid, unix.RLIMIT_FSIZE, &old, nil); err != nil {
			t.Fatal(err)
		}
	}
	limit(5 << 20)
	message := strings.Repeat("m", 4000)
	full := false
	for i := 0; i < 3000 && !full; i++ {
		a := s.get(t, fmt.Sprintf("/v1/event/%d/send?message=%s", i, message))
		if full = a.is("503 …" + dir + ": the disk is full…"); !full && !a.is("204") {
			t.Fatalf("send %d = %s, want 204, or 503 and why", i, a)
		}
	}
	if !full {
		t.Fatal("the disk was never full")
	}
	s.want(t, "/v1/semaphore/s/acquire?key=k", "503 …"+dir+": the disk is full…")
	s.want(t, "/v1/tokenbucket/t/acquire", "204")
	s.want(t, "/v1/counter/c/count", "200 2")
	s.want(t, "/v1/lock/l/renew?key=k&expires=60000", "204")
	s.want(t, "/v1/lock/l/release?key=k", "204")
	s.want(t, "DELETE /v1/event/0", "204")
	limit(unix.RLIM_INFINITY)
	until(t, "there is room again", func() bool {
		return s.get(t, "/v1/semaphore/s/acquire?key=k").is("200")
	})
}

// Two servers do not share a directory, and data that a server uses is not looked at.
func TestOneServerForADirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, "--store", "disk:"+dir)
	pid := fmt.Sprint(s.process.Pid)
	for _, args := range [][]string{
		{"serve", "--http", "localhost:0", "--store", "disk:" + dir},
		{"data", "check", dir}, {"data", "check", "--drop", dir}, {"data", "dump", dir},
	} {
		began := time.Now()
		status, _, said := gatehouse(t, nil, args...)
		if status != 1 || !strings.Contains(said, dir) || !strings.Contains(said, pid) {
			t.Errorf("%s ended with %d and said %q, want 1, the directory and %s", args, status, said, pid)
		}
		t.Logf("%s was refused after %s", args[0], time.Since(began).Round(time.Millisecond))
	}
	s.want(t, "/v1/counter/c/count", "200 1")
}

// What is in a directory can be looked at, and survives a stop like any other end.
func TestDataIsLookedAt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, "--store", "disk:"+dir)
	s.want(t, "/v1/semaphore/s/acquire?size=2&key=a&expires=0", "200")
	s.want(t, "/v1/tokenbucket/t/acquire?size=1&interval=3600000", "204")
	s.want(t, "/v1/event/e/send?message=hello", "204")
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]string{
		"check":            "…gatehouse.db: …1  tokenbucket\n…1  semaphore\n…1  event\n…1  holds…nothing is…",
		"check --json":     `{…"faults":[],…"holds":1,…"names":{"event":1,"semaphore":1,"tokenbucket":1},…`,
		"dump":             `{…"tokenbucket"…}` + "\n" + `{…"semaphore"…"holder":"a"…}` + "\n{…hello…",
		"dump --kind lock": "",
	} {
		args := append([]string{"data"}, strings.Fields(command+" "+dir)...)
		status, out, said := gatehouse(t, nil, args...)
		if status != 0 || !matches(want, out) {
			t.Errorf("%q: status %d, printed %q, said %q, want %q", command, status, out, said, want)
		}
	}
	status, _, said := gatehouse(t, nil, "data", "dump", "--kind", "door", dir)
	if status != 2 || !strings.Contains(said, `--kind is "door"`) {
		t.Errorf("data dump --kind door ended with %d and said %q, want 2 and why", status, said)
	}
	s = start(t, "--store", "disk:"+dir)
	s.want(t, "/v1/tokenbucket/t/acquire?size=1&interval=3600000&maxwait=0", "408")
	s.want(t, "/v1/event/e/wait?maxwait=0", "204")
}
