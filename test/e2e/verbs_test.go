package e2e

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	root "github.com/gatehousehq/gatehouse"
)

// TestVerbs asks by the commands what is asked over HTTP elsewhere.
func TestVerbs(t *testing.T) {
	t.Parallel()
	in := strings.NewReplacer("{}", fresh(t))
	for _, c := range []struct {
		command string
		status  int
		out     string
		said    string
	}{
		{"acquire gcra/{} --limits 2/1h", 0, "gcra/{}: granted, 1 of 2 left\n", ""},
		{"acquire gcra/{} --cost 2 --maxwait 10ms", 75, "",
			"gatehouse: gcra/{}: acquire not granted…try again in …\n"},
		{"peek gcra/{}", 0, "gcra/{}: granted, 1 of 2 left\n", ""},
		{"delay gcra/{} --cost 2", 0, "…m…s\n", ""},
		{"refund gcra/{}", 0, "", ""},
		{"charge gcra/{} --cost 2", 0, "", ""},
		{"feedback gcra/{} --status 429 --retry-after 1h", 0, "", ""},
		{"peek gcra/{}", 75, "", "gatehouse: gcra/{}: peek not granted…\n"},
		{"reset gcra/{}", 0, "", ""},
		{"close gcra/{} --reason maintenance", 0, "", ""},
		{"acquire gcra/{} --maxwait 0", 75, "",
			"gatehouse: gcra/{}: acquire not granted: is closed…maintenance…\n"},
		{"open gcra/{}", 0, "", ""},
		{"delete gcra/{}", 0, "", ""},
		{"delete gcra/{}", 1, "", "gatehouse: gcra/{} does not exist\n"},
		{"acquire semaphore/{} --size 2 --key a --owner ann --expires 90m", 0,
			"semaphore/{}: granted, 1 of 2 left, for 1h30m0s, fence …\n" +
				"give it back: gatehouse release semaphore/{} --key a\n", ""},
		{"acquire semaphore/{} --cost 2 --maxwait 0", 75, "",
			"gatehouse: semaphore/{}: acquire not granted: …ann for …; try again in …\n"},
		{"ps semaphore/{}", 0, "HOLDS 1 OF 2…\nann…1h…1…h…\n", ""},
		{"renew semaphore/{} --key a --expires 2h", 0, "semaphore/{}: granted…for 2h0m0s, fence …\n", ""},
		{"release semaphore/{} --key b", 1, "", "gatehouse: semaphore/{}: release: …\n"},
		{"release semaphore/{} --force", 0, "semaphore/{}: 1 holds ended\n", ""},
		{"release semaphore/{} --key a", 1, "", "…evicted by …: released by force\n"},
		{"ps semaphore/{}", 0, "HOLDS 0 OF 2…\nnobody holds it, and nobody waits\n", ""},
		{"ls semaphore/{}", 0, "NAME…\nsemaphore/{}  0     2 …\n", ""},
		{"count counter/{} --amount 5", 0, "5\n", ""},
		{"value counter/{}", 0, "5\n", ""},
		{"send event/{} --message done", 0, "", ""},
		{"send event/{}", 1, "", "gatehouse: event/{}: send: …\n"},
		{"wait event/{}", 0, "done\n", ""},
		{"kick watchdog/{} --expires 24h", 0, "", ""},
		{"wait watchdog/{} --maxwait 0", 75, "", "gatehouse: watchdog/{}: wait not granted…\n"},
		{"stats counter/{}", 0, "…value…5\n…", ""},
		{"wait gcra/{}", 2, "", "gatehouse: gcra/{} has no wait; see gatehouse --help\n"},
		{"acquire verbs", 2, "", "gatehouse: \"verbs\" has no kind, want KIND/NAME such as semaphore/gpu\n"},
		{"acquire gcra/{} --size few", 2, "", "gatehouse: size is \"few\", want a whole number…\n"},
		{"ps lock/nothing-of-this", 0, "nobody holds it, and nobody waits\n", ""},
		{"top gcra/{} --once --every 100ms", 0, "NAME  …YES/s   NO/s\n", ""},
	} {
		command, wantOut, wantSaid := in.Replace(c.command), in.Replace(c.out), in.Replace(c.said)
		args := append(strings.Fields(command), "--server", shared().address)
		status, out, said := gatehouse(t, nil, args...)
		if status != c.status || !matches(wantOut, out) || !matches(wantSaid, said) {
			t.Errorf("gatehouse %s ended with %d, wrote %q and said %q, want %d, %q, %q",
				command, status, out, said, c.status, wantOut, wantSaid)
		}
	}
	load := strings.Fields("load semaphore/load --size 2 --callers 4 --names 3 --duration 300ms --server")
	status, out, said := gatehouse(t, nil, append(load, shared().address)...)
	want := "… answers in …, … a second: … granted, … refused\n    50%  within …\n…100%  within …\n"
	if status != 0 || !matches(want, out) {
		t.Errorf("load ended with %d, wrote %q and said %q, want figures", status, out, said)
	}
	away := []string{"acquire", "lock/a", "--server", "127.0.0.1:" + freePort(t)}
	if status, _, said := gatehouse(t, nil, away...); status != 69 || !strings.Contains(said, "refused") {
		t.Errorf("without a server: status %d, said %q, want 69", status, said)
	}
}

// TestVerbsForPrograms prints JSON, and takes the server from the environment.
func TestVerbsForPrograms(t *testing.T) {
	t.Parallel()
	env := []string{"GATEHOUSE_SERVER=" + shared().address}
	ask := func(command string) (status int, told map[string]any) {
		t.Helper()
		status, out, said := gatehouse(t, env, append(strings.Fields(command), "--json")...)
		if err := json.Unmarshal([]byte(out), &told); err != nil {
			t.Fatalf("gatehouse %s printed %q and said %q: %v", command, out, said, err)
		}
		return status, told
	}
	_, first := ask("acquire lock/programs --expires 1h")
	if first["granted"] != true || first["key"] == "" || first["fence"] == 0 {
		t.Errorf("acquire printed %v, want it granted with a key and a fence", first)
	}
	status, second := ask("acquire lock/programs --maxwait 0")
	if status != 75 || second["granted"] != false || second["outcome"] != "refused" {
		t.Errorf("the second acquire ended with %d and printed %v, want it refused", status, second)
	}
	_, holders := ask("ps lock/programs")
	if list, _ := holders["holders"].([]any); len(list) != 1 {
		t.Errorf("ps printed %v, want one holder", holders)
	}
	if status, _ := ask("release lock/programs --key " + first["key"].(string)); status != 0 {
		t.Errorf("the release ended with %d, want 0", status)
	}
	status, out, _ := gatehouse(t, env, "__complete", "ps", "lock/progr")
	if status != 0 || !strings.HasPrefix(out, "lock/programs\n") {
		t.Errorf("the completion of lock/progr is %q, want lock/programs", out)
	}
}

// One list of holders has 1,000 at most.
func TestForceEndsMoreHoldsThanOneListHas(t *testing.T) {
	t.Parallel()
	key := root.Key{Kind: root.Semaphore, Name: "many-holds"}
	c := askShared(t)
	for i := range 1100 {
		_, err := c.Do(t.Context(), key, root.Command{
			Op: root.OpAcquire, Holder: strconv.Itoa(i), Rule: root.Rule{Size: 1200}, Cost: 1,
			Expires: time.Hour,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	status, out, said := gatehouse(t, nil, "release", key.String(), "--force", "--server", shared().address)
	if status != 0 || out != "semaphore/many-holds: 1100 holds ended\n" {
		t.Errorf("status %d, wrote %q and said %q, want all 1100 ended", status, out, said)
	}
}
