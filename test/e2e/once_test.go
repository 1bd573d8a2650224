package e2e

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	root "github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/await"
)

// onceOn is the command line of a firing at the shared server.
func onceOn(flags, command string) []string {
	args := append([]string{"once", "--server", shared().address, "--quiet"}, strings.Fields(flags)...)
	return append(args, "--", "sh", "-c", command)
}

// Many hosts start one firing at about the same time, and write its time in different ways: one of them runs
// it and all end with its status.
func TestOnceRunsOnOneHost(t *testing.T) {
	t.Parallel()
	job := "--job " + fresh(t)
	runs := filepath.Join(t.TempDir(), "runs")
	at := []string{"2026-10-01T03:00Z", "2026-10-01T03:00:00Z", "2026-10-01T05:00+02:00"}
	var hosts sync.WaitGroup
	for i := range 9 {
		hosts.Go(func() {
			status, out, said := gatehouse(t, nil, onceOn(job+" --share --at "+at[i%len(at)],
				"echo a run >>"+runs+"; echo the output; exit 4")...)
			if status != 4 || out != "the output\n" {
				t.Errorf("host %d ended with %d, wrote %q and said %q, want 4 and the output", i, status,
					out, said)
			}
		})
	}
	hosts.Wait()
	if text, err := os.ReadFile(runs); err != nil || string(text) != "a run\n" {
		t.Errorf("it has run %q, %v, want one run", text, err)
	}
	status, _, _ := gatehouse(t, nil, onceOn(job+" --at 2026-10-02T03:00Z", "exit 5")...)
	if status != 5 {
		t.Errorf("the next firing ended with %d, want 5", status)
	}
}

// A host that dies leaves a firing that was run at most once: the others learn that it was lost.
func TestOnceOnAHostThatDies(t *testing.T) {
	t.Parallel()
	flags := "--job " + fresh(t) + " --at 2026-10-01T03:00Z"
	first := startTool(t, onceOn(flags, "echo running; sleep 1000")...)
	awaitLine(t, first.out, "running")
	second := startTool(t, onceOn(flags, "echo never")...)
	if err := first.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if status := second.end(t); status != 79 || second.out.String() != "" {
		t.Errorf("the second host ended with %d and wrote %q, want 79 and nothing", status, second.out)
	}
	status, out, _ := gatehouse(t, nil, onceOn(flags+" --retry", "echo again")...)
	if status != 0 || out != "again\n" {
		t.Errorf("with --retry: status %d, wrote %q, want it run again", status, out)
	}
	status, out, _ = gatehouse(t, nil, onceOn(flags+" --retry", "echo third")...)
	if status != 0 || out != "" {
		t.Errorf("after that: status %d, wrote %q, want 0 and nothing", status, out)
	}
}

// The watchdog of a job fires when a firing was missed or has failed.
func TestOnceExpectsTheNext(t *testing.T) {
	t.Parallel()
	c := askShared(t)
	for _, job := range []struct {
		name, command, expect string
		fires                 bool
	}{
		{"in-time", "exit 0", "every=24h,grace=20m", false},
		{"failing", "exit 1", "every=24h,grace=20m", true},
		{"missed", "exit 0", "every=50ms,grace=50ms", true},
	} {
		name := fresh(t) + "-" + job.name
		flags := "--job " + name + " --at 2026-10-01T03:00Z --expect " + job.expect
		gatehouse(t, nil, onceOn(flags, job.command)...)
		key := root.Key{Kind: root.Watchdog, Name: "once/" + name}
		fired := func() bool {
			d, err := c.Do(t.Context(), key, root.Command{Op: root.OpWait})
			return err == nil && d.Outcome == root.Granted
		}
		if job.fires {
			await.True(t, "the watchdog of "+name+" has fired", fired)
		} else if fired() {
			t.Errorf("the watchdog of %s has fired, want it silent", name)
		}
	}
}

// A host that cannot set the watchdog has not claimed the firing: another one runs it.
func TestOnceWithoutItsWatchdog(t *testing.T) {
	t.Parallel()
	server := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "http", Host: shared().address})
	}}
	faulty := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/kick") {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		server.ServeHTTP(w, r)
	}))
	defer faulty.Close()
	flags := "--job " + fresh(t) + " --at 2026-10-01T03:00Z --expect every=24h,grace=20m"
	first := onceOn(flags, "echo first")
	first[2] = strings.TrimPrefix(faulty.URL, "http://")
	if status, out, _ := gatehouse(t, nil, first...); status != 69 || out != "" {
		t.Errorf("without a watchdog: status %d, wrote %q, want 69 and nothing", status, out)
	}
	status, out, said := gatehouse(t, nil, onceOn(flags, "echo second")...)
	if status != 0 || out != "second\n" {
		t.Errorf("the next host: status %d, wrote %q, said %q, want that it runs", status, out, said)
	}
}

func TestOnceMistakes(t *testing.T) {
	t.Parallel()
	for flags, want := range map[string]string{
		"--at 2026-10-01T03:00Z": "gatehouse: --job is \"\", want a name without /\n",
		"--job a --at yesterday": "gatehouse: --at is \"yesterday\", want a time " +
			"such as 2026-10-01T03:00Z\n",
		"--job a --at 2026-10-01T03:00Z --keep 0s": "gatehouse: --keep is 0s, want at least 1s\n",
		"--job a --at 2026-10-01T03:00Z --expect soon": "gatehouse: --expect is \"soon\", want " +
			"every=DURATION,grace=DURATION\n",
	} {
		if status, _, said := gatehouse(t, nil, onceOn(flags, "true")...); status != 2 || said != want {
			t.Errorf("once %s ended with %d and said %q, want 2 and %q", flags, status, said, want)
		}
	}
}

// The other hosts learn how a firing ended even if nothing reads the output of the host that ran it.
func TestOnceTellsOthersThoughNobodyReads(t *testing.T) {
	t.Parallel()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	job := fresh(t)
	flags := "--job " + job + " --at 2026-10-01T03:00Z --share"
	first := exec.Command(binary(), onceOn(flags, "head -c 120000 /dev/zero | tr '\\0' x; exit 6")...)
	first.Stdout = write
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	_ = write.Close()
	// The pipe is read once the other host knows all: what did not fit in is still there then.
	isHeld := func() bool { return !isFree(t, "once/"+job+"/2026-10-01T03:00:00Z") }
	await.True(t, "the first host has claimed the firing", isHeld)
	status, out, _ := gatehouse(t, nil, onceOn(flags+" --retry", "echo again")...)
	if want := strings.Repeat("x", 4000); status != 6 || out != want {
		t.Errorf("the second host ended with %d and wrote %d bytes, want 6 and the last 4,000", status,
			len(out))
	}
	text, err := io.ReadAll(read)
	if err != nil || len(text) != 120000 {
		t.Errorf("the first host wrote %d bytes, %v, want all 120,000", len(text), err)
	}
	if _ = first.Wait(); first.ProcessState.ExitCode() != 6 {
		t.Errorf("the first host: %v, want status 6", first.ProcessState)
	}
}

// An event of that name whose message is not a status was sent by another program. A status of 256 would end
// this program with 0.
func TestOnceTakesNothingElseForAStatus(t *testing.T) {
	t.Parallel()
	c := askShared(t)
	for _, message := range []string{"256", "-1", "done"} {
		job := fresh(t)
		event := root.Key{Kind: root.Event, Name: "once/" + job + "/2026-10-01T03:00:00Z"}
		_, err := c.Do(t.Context(), event, root.Command{Op: root.OpSend, Message: message})
		if err != nil {
			t.Fatal(err)
		}
		status, out, said := gatehouse(t, nil, onceOn("--at 2026-10-01T03:00Z --job "+job, "echo ran")...)
		if status != 1 || out != "" || !strings.Contains(said, "somebody else has sent it") {
			t.Errorf("%q: status %d, wrote %q and said %q, want 1 and that the event is another's", message,
				status, out, said)
		}
	}
}
