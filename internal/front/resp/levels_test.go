package resp

import (
	"strings"
	"testing"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/store/memory"
	"github.com/prometheus/client_golang/prometheus"
)

// The owner of a grant reaches the gate, which is asked to name the holders if details are wanted.
func TestOwnerOfAGrant(t *testing.T) {
	d, fake := openGrants(t, grants)
	d.dial(t).ask("GH.GRANT OWNER a HOST h PURPOSE p WITH DETAILS WANT lock/l")
	cmd := &fake.asked(t, 1).Command
	want := gatehouse.Owner{Name: "a", Host: "h", Purpose: "p"}
	if cmd.Owner == nil || *cmd.Owner != want || !cmd.Explain {
		t.Errorf("the owner is %+v, explained is %t, want %+v", cmd.Owner, cmd.Explain, want)
	}
}

// A command with parents is answered as one about the name alone, and with all there is to know it says which
// level decided.
func TestParents(t *testing.T) {
	d := openStore(t, Config{Metrics: prometheus.NewRegistry()}, memory.New(memory.Config{}))
	const under = " PARENTS fixedwindow/team:6/1h;gcra/org%3A7:2000/1m"
	c := d.dial(t)
	for _, v := range [][2]string{
		{"GH.ACQUIRE gcra/u SIZE 10 INTERVAL 3600000 COST 4" + under, "OK"},
		{"GH.ACQUIRE gcra/u COST 4 MAXWAIT 0" + under, "null"},
		{"GH.DELAY gcra/u COST 2" + under, "0"},
		{"GH.PEEK gcra/u COST 3" + under, "[granted 0 limit 6 remaining 2 retry_after … reset_after … " +
			"binding fixedwindow/team want [[name gcra/u cost 3 outcome granted limit 10 remaining 6 …] " +
			"[name fixedwindow/team cost 3 outcome refused …] [name gcra/org:7 …]]]"},
		{"GH.ACQUIRE gcra/u COST 2 WITH DETAILS" + under, "[granted 1 limit 6 remaining 0 …" +
			"binding fixedwindow/team want [[name gcra/u cost 2 limit 10 …] …]]"},
		{"GH.DELAY gcra/u COST 1 WITH DETAILS" + under, "[granted 1 limit 6 …delay … binding …" +
			"[[name gcra/u …delay 0] …]]"},
		{"GH.PEEK gcra/org:7", "[granted 1 limit 2000 …]"},
		{"GH.PEEK gcra/none PARENTS gcra/a:1/1s", "NOTFOUND gcra/none does not exist"},
		{"GH.ACQUIRE gcra/u COST 7" + under, "INVALID fixedwindow/team: cost 7 can never fit a size of 6"},
		{"GH.CHARGE gcra/u" + under, "INVALID parents is for acquire, peek and delay of limiters…"},
		{"GH.ACQUIRE gcra/u PARENTS gcra/u:1/1s", "INVALID parents has gcra/u, want other names than…"},
		{"GH.ACQUIRE gcra/u PARENTS team", "INVALID parents has \"team\", want KIND/NAME:LIMITS…"},
	} {
		got := strings.NewReplacer("{", "[", "}", "]", "<", "", ">", "").Replace(c.ask(v[0]))
		if got = strings.TrimPrefix(strings.TrimPrefix(got, "-"), "+"); !like(got, v[1]) {
			t.Errorf("%s =\n%s, want\n%s", v[0], got, v[1])
		}
	}
	// One that waits does so in its place, and is answered before what is behind it.
	const waits = "GH.ACQUIRE gcra/w SIZE 1 INTERVAL 60000 PARENTS gcra/wp:1/100ms"
	c.ask("GH.ACQUIRE gcra/wp SIZE 1 INTERVAL 100")
	if got := c.ask(waits); !strings.Contains(got, "OK") {
		t.Errorf("what has waited = %s, want OK", got)
	}
	other := d.dial(t)
	other.send(wire(strings.Fields(waits)...))
	d.inLine(t, 1)
	_ = other.Close()
	d.inLine(t, 0)
}

// like compares a text with a pattern, in which … stands for anything.
func like(text, pattern string) bool {
	parts := strings.Split(pattern, "…")
	for i, part := range parts {
		at := strings.Index(text, part)
		if at < 0 || i == 0 && at > 0 || i == len(parts)-1 && part != "" && !strings.HasSuffix(text, part) {
			return false
		}
		text = text[at+len(part):]
	}
	return true
}
