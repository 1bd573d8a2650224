package resp

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/memory"
	"github.com/prometheus/client_golang/prometheus"
)

// A fakeGrants is a gate whose grants the test decides.
type fakeGrants struct {
	*gate.Gate
	decide func(r *gate.GrantRequest) // nil leaves the request undecided

	mu                  sync.Mutex
	submitted, canceled []*gate.GrantRequest
}

func (f *fakeGrants) SubmitGrant(r *gate.GrantRequest) {
	f.mu.Lock()
	f.submitted = append(f.submitted, r)
	f.mu.Unlock()
	if f.decide != nil {
		f.decide(r)
		r.Decided(r)
	}
}

func (f *fakeGrants) CancelGrant(r *gate.GrantRequest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.canceled = append(f.canceled, r)
}

// asked waits until so many requests were submitted, and returns the last.
func (f *fakeGrants) asked(t *testing.T, n int) (last *gate.GrantRequest) {
	t.Helper()
	until(t, fmt.Sprintf("%d requests were submitted", n), func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		if n > 0 && len(f.submitted) == n {
			last = f.submitted[n-1]
		}
		return len(f.submitted) == n
	})
	return last
}

// cancels waits until so many requests were canceled.
func (f *fakeGrants) cancels(t *testing.T, n int) {
	t.Helper()
	until(t, fmt.Sprintf("%d requests were canceled", n), func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.canceled) == n
	})
}

// openGrants opens a door whose grants a function decides; nil leaves them undecided.
func openGrants(t *testing.T, decide func(r *gate.GrantRequest)) (*door, *fakeGrants) {
	t.Helper()
	store := memory.New(memory.Config{})
	f := &fakeGrants{Gate: gate.New(store, gate.Config{}), decide: decide}
	return openStore(t, Config{Gate: f, Metrics: prometheus.NewRegistry()}, store), f
}

// grants decides that a request is granted.
func grants(r *gate.GrantRequest) {
	r.Decision = gatehouse.GrantDecision{
		Outcome: gatehouse.Granted, ID: r.Command.ID, Fence: 7, ExpiresAfter: time.Minute, Binding: -1,
	}
	for _, m := range r.Command.Want {
		r.Decision.Want = append(r.Decision.Want, gatehouse.MemberDecision{
			Key: m.Key, Cost: m.Cost, Decision: gatehouse.Decision{
				Outcome: gatehouse.Granted, Limit: 10, Remaining: 10 - m.Cost,
				ResetAfter: 1500 * time.Microsecond,
			},
		})
	}
}

// refuses decides that a request is refused by its first name.
func refuses(r *gate.GrantRequest) {
	grants(r)
	r.Decision.Outcome, r.Decision.Binding, r.Decision.RetryAfter = gatehouse.Refused, 0, time.Second
	r.Decision.Want[0].Outcome, r.Decision.Want[0].RetryAfter = gatehouse.Refused, time.Second
}

// What the arguments say is what the gate is asked.
func TestGrantCommands(t *testing.T) {
	for command, want := range map[string]string{
		"GH.GRANT WANT gcra/a LIMITS 500/1m": "acquire  wait=-1ns expires=0s debt estimate [gcra/a " +
			"500/1m 1 false] []",
		"gh.grant id op-7f maxwait 30000 expires 120000 overrun cap on-expiry last want GCRA/openai/rpm " +
			"limits " +
			"500/1m want tokenbucket/openai/tpm size 200000 interval 60000 cost 3200 fit clip " +
			"want semaphore/s want lock/region/eu": "acquire op-7f wait=30s expires=2m0s cap last " +
			"[gcra/openai/rpm 500/1m 1 false] [tokenbucket/openai/tpm 200000 3200 true] " +
			"[semaphore/s in force 1 false] [lock/region/eu 0 1 false] []",
		"GH.GRANT ID want WANT gcra/want": "acquire want wait=-1ns expires=1m0s debt estimate " +
			"[gcra/want in force 1 false] []",
		"GH.GRANT ID x MAXWAIT 0 WITH DETAILS WANT gcra/a": "acquire x wait=0s expires=1m0s debt estimate " +
			"[gcra/a in force 1 false] []",
		"GH.GRANT ID x WANT gcra/a WITH DETAILS": "acquire x wait=-1ns expires=1m0s debt estimate " +
			"[gcra/a in force 1 false] []",
		"GH.RENEW grant/a":                   "renew a wait=0s expires=-1ns debt estimate []",
		"GH.RENEW grant/a EXPIRES 5 FENCE 7": "renew a wait=0s expires=5ms debt estimate [] fence=7",
		"GH.RELEASE grant/a":                 "release a wait=0s expires=0s debt estimate []",
		"GH.RELEASE Grant/a gcra/b/c 5":      "release a wait=0s expires=0s debt estimate [{gcra/b/c 5}]",
		"GH.PEEK grant/a":                    "peek a wait=0s expires=0s debt estimate []",
		"GH.SETTLE grant/a gcra/b 0 pace/c 41": "settle a wait=0s expires=0s debt estimate [{gcra/b 0} " +
			"{pace/c 41}]",
		"GH.TOPUP grant/a gcra/b 1 MAXWAIT -1": "topup a wait=-1ns expires=0s debt estimate [{gcra/b 1}]",
		"GH.TOPUP grant/a gcra/b 1":            "topup a wait=0s expires=0s debt estimate [{gcra/b 1}]",
	} {
		d, fake := openGrants(t, grants)
		if got := d.dial(t).ask(command); !strings.HasPrefix(got, "[granted 1") {
			t.Errorf("%s = %s, want a grant", command, got)
			continue
		}
		if got := describe(&fake.asked(t, 1).Command); got != want {
			t.Errorf("%s asks for\n%s, want\n%s", command, got, want)
		}
	}
}

// describe writes a command as the table above does.
func describe(cmd *gatehouse.GrantCommand) string {
	out := fmt.Sprintf("%s %s wait=%s expires=%s %s %s", cmd.Op, cmd.ID, cmd.MaxWait, cmd.Expires,
		cmd.Overrun,
		cmd.OnExpiry)
	for _, m := range cmd.Want {
		rule := m.Limits.String()
		switch {
		case m.Size == gatehouse.InForce:
			rule = "in force"
		case rule == "":
			rule = fmt.Sprint(m.Size)
		}
		out += fmt.Sprintf(" [%s %s %d %t]", m.Key, rule, m.Cost, m.Clip)
	}
	out += fmt.Sprintf(" %v", cmd.Costs)
	if cmd.Fence != 0 {
		out += fmt.Sprintf(" fence=%d", cmd.Fence)
	}
	return out
}

// Each outcome has its answer, a map of which is one in RESP3.
func TestGrantReplies(t *testing.T) {
	const command = "GH.GRANT ID x WANT gcra/a WANT lock/b"
	const members = "[name gcra/a cost 1 limit 10 remaining 9 retry_after 0 reset_after 2] " +
		"[name lock/b cost 1 limit 10 remaining 9 retry_after 0]"
	ends := func(o gatehouse.Outcome, message string) func(*gate.GrantRequest) {
		return func(r *gate.GrantRequest) { r.Decision.Outcome, r.Decision.Message = o, message }
	}
	for _, test := range []struct {
		command, want string
		decide        func(r *gate.GrantRequest)
	}{
		{command, "[granted 1 id x fence 7 expires_in 60000 want [" + members + "]]", grants},
		{"GH.GRANT WANT gcra/a", "[granted 1 want [[name gcra/a cost 1 limit 10 remaining 9 retry_after 0 " +
			"reset_after 2]]]", grants},
		{"GH.PEEK grant/x", "[granted 1 id x fence 7 expires_in 60000 ended 0 want []]", grants},
		{command, "null", refuses},
		{command + " WITH DETAILS", "[granted 0 retry_after 1000 binding gcra/a want [[name gcra/a cost " +
			"1 outcome " +
			"refused limit 10 remaining 9 retry_after 1000 reset_after 2] [name lock/b cost 1 outcome " +
			"granted " +
			"limit 10 remaining 9 retry_after 0]]]", refuses},
		{"GH.SETTLE grant/x gcra/a 5", "[granted 1 id x fence 7 expires_in 60000 want [[name gcra/a " +
			"cost 5 booked 4 " +
			"capped 3]]]", func(r *gate.GrantRequest) {
			grants(r)
			r.Decision.Want = []gatehouse.MemberDecision{{Key: r.Command.Costs[0].Key, Cost: 5, Capped: 3}}
			r.Decision.Want[0].Booked = 4
		}},
		{command, "CONFLICT grant/x wants something else",
			ends(gatehouse.Conflict, "grant/x wants something else")},
		{"GH.RENEW grant/x", "NOTFOUND grant/x does not exist", ends(gatehouse.Missing, "")},
		{command, "DELETED gcra/a was deleted", ends(gatehouse.Deleted, "gcra/a was deleted")},
		{command, "INVALID no", ends(gatehouse.Invalid, "no")},
		{command, "EXHAUSTED full", ends(gatehouse.Exhausted, "full")},
		{command, "UNAVAILABLE away", func(r *gate.GrantRequest) {
			r.Err = gatehouse.Errorf(gatehouse.CodeUnavailable, "away")
		}},
	} {
		d, _ := openGrants(t, test.decide)
		for _, hello := range []string{"HELLO 2", "HELLO 3"} {
			c := d.dial(t)
			c.ask(hello)
			got := strings.TrimPrefix(c.ask(test.command), "-")
			if hello == "HELLO 3" && strings.HasPrefix(test.want, "[") && !strings.HasPrefix(got,
				"{granted") {
				t.Errorf("%s = %s in RESP3, want a map", test.command, got)
			}
			got = strings.NewReplacer("{", "[", "}", "]", "<", "", ">", "").Replace(got)
			if got != test.want {
				t.Errorf("%s: %s =\n%s, want\n%s", hello, test.command, got, test.want)
			}
		}
	}
}

// Each fault is named, with what was given and what is wanted, and nothing is asked of the gate.
func TestBadGrantCommands(t *testing.T) {
	d, fake := openGrants(t, grants)
	c := d.dial(t)
	for command, want := range map[string]string{
		"GH.GRANT":                           "wrong number of arguments",
		"GH.GRANT WANT":                      "wrong number of arguments",
		"GH.GRANT ID x":                      "grant has no WANT kind/name, want 1 to 16",
		"GH.GRANT ID x WANT":                 `parameter "WANT" has no value`,
		"GH.GRANT WANT gcra/a SIZE":          `parameter "SIZE" has no value`,
		"GH.GRANT WANT gcra":                 `want is "gcra", want kind/name`,
		"GH.GRANT WANT bucket/a":             `kind "bucket" is unknown`,
		"GH.GRANT WANT grant/a":              `grants have GH.GRANT, and GH.PEEK`,
		"GH.GRANT WANT counter/a":            "counter/a: counter cannot be part of a grant",
		"GH.GRANT WANT gcra/":                "name has 0 bytes",
		"GH.GRANT WANT gcra/a WANT gcra/a":   "gcra/a twice",
		"GH.GRANT WANT gcra/a SIZE x":        `gcra/a: size is "x", want a whole number from 0`,
		"GH.GRANT WANT gcra/a SIZE 5 COST 6": "cost 6 can never fit a size of 5",
		"GH.GRANT WANT gcra/a COST 0":        `gcra/a: cost is "0", want a whole number from 1`,
		"GH.GRANT WANT gcra/a KEY k":         `gcra/a: parameter "KEY" is unknown`,
		"GH.GRANT WANT gcra/a MAXWAIT 5":     `gcra/a: parameter "MAXWAIT" is unknown`,
		"GH.GRANT WANT gcra/a FIT cut":       `gcra/a: fit is "cut", want clip`,
		"GH.GRANT WANT lock/a SIZE 2":        "lock/a: size is a parameter of limiters",
		"GH.GRANT SIZE 5 WANT gcra/a": `parameter "SIZE" is unknown, want one of id ` +
			`maxwait`,
		"GH.GRANT EXPIRES 0 WANT gcra/a": `expires is "0", want a whole number of ` +
			`milliseconds from 1`,
		"GH.GRANT MAXWAIT 5s WANT gcra/a": `maxwait is "5s", want a whole number of ` +
			`milliseconds`,
		"GH.GRANT OVERRUN no WANT gcra/a":                 `overrun is "no", want debt or cap`,
		"GH.GRANT ON-EXPIRY no WANT gcra/a":               `on-expiry is "no", want estimate, zero or last`,
		"GH.GRANT ID a/b WANT gcra/a":                     `"a/b" has the byte`,
		"GH.GRANT WITH MORE WANT gcra/a":                  `with is "MORE", want DETAILS`,
		"GH.GRANT " + strings.Repeat("WANT lock/%d ", 17): "grant wants more than 16 names",
		"GH.RENEW grant/":                                 "has 0 bytes, want 1 to 128",
		"GH.RENEW grant/a/b":                              `"a/b" has the byte`,
		"GH.RENEW grant/a EXPIRES 0":                      `expires is "0"`,
		"GH.RENEW grant/a gcra/a 5": `parameter "gcra/a" is unknown, want one of ` +
			`expires fence`,
		"GH.RENEW grant/a KEY k":   `parameter "KEY" is unknown`,
		"GH.RENEW grant/a EXPIRES": `parameter "EXPIRES" has no value`,
		"GH.PEEK grant/a FENCE 5": `parameter "FENCE" is unknown, want none of ` +
			`a peek`,
		"GH.SETTLE grant/a":                     "wrong number of arguments",
		"GH.SETTLE grant/a FENCE 7":             "Costs is of 0 names",
		"GH.SETTLE grant/a gcra/a -1":           `"gcra/a": cost is "-1"`,
		"GH.SETTLE grant/a lock/a 1":            `"lock/a", want it of a limiter`,
		"GH.SETTLE grant/a gcra/a 1 gcra/a 2":   "gcra/a twice",
		"GH.SETTLE gcra/a gcra/b 1":             `parameter "gcra/b" is unknown`,
		"GH.SETTLE gcra/a SIZE 1":               "gcra has no operation settle",
		"GH.TOPUP grant/a gcra/a 0":             `cost is "0", want a whole number from 1`,
		"GH.STATS grant/a":                      `grants have GH.GRANT, and GH.PEEK`,
		"GH.DELETE grant/a":                     `grants have GH.GRANT, and GH.PEEK`,
		"GH.ACQUIRE grant/a":                    `grants have GH.GRANT, and GH.PEEK`,
		"GH.CHARGE grant/a COST 5":              `grants have GH.GRANT, and GH.PEEK`,
		"GH.LIST grant":                         `grants have GH.GRANT, and GH.PEEK`,
		"GH.DELETEPREFIX grant a CONFIRM grant": `grants have GH.GRANT, and GH.PEEK`,
	} {
		if strings.Contains(command, "%d") {
			command = fmt.Sprintf(command, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16)
		}
		if got := c.ask(command); !strings.Contains(got, want) {
			t.Errorf("%s = %s, want %s", command, got, want)
		}
	}
	fake.asked(t, 0)
	c.want("PING", "PONG")
}

// A grant over as many names as there may be, each with all its parameters, is one command.
func TestLargestGrantCommand(t *testing.T) {
	d, fake := openGrants(t, grants)
	words := []string{"GH.GRANT", "ID", "x", "MAXWAIT", "0", "EXPIRES", "5", "OVERRUN", "cap", "ON-EXPIRY",
		"zero"}
	for i := range gatehouse.MaxMembers {
		words = append(words, "WANT", fmt.Sprint("pace/", i), "LIMITS", "5/1s,50/1m", "ZONE", "UTC", "MODE",
			"paced",
			"GUARD", "5", "COST", "2", "FIT", "clip")
	}
	c := d.dial(t)
	c.send(wire(words...))
	if got := c.answer(); !strings.HasPrefix(got, "[granted 1") || len(fake.asked(t, 1).Command.Want) != 16 {
		t.Errorf("%d words = %s, want a grant", len(words), got)
	}
}

// A grant that waits blocks its own connection alone, and what follows comes behind its answer.
func TestGrantWaits(t *testing.T) {
	d, fake := openGrants(t, nil)
	c := d.dial(t)
	c.send(wire("PING") + wire("GH.GRANT", "ID", "w", "WANT", "lock/a") + wire("GH.COUNT", "counter/n"))
	asked := fake.asked(t, 1)
	if got := c.answer(); got != "PONG" {
		t.Errorf("before the grant came %s, want PONG", got)
	}
	d.dial(t).want("GH.COUNT counter/n AMOUNT 0", "0")
	grants(asked)
	asked.Decided(asked)
	for _, want := range []string{"[granted 1 id w fence 7 …", "1"} {
		if got := c.answer(); !matches(want, got) {
			t.Errorf("the answer is %s, want %s", got, want)
		}
	}
	fake.cancels(t, 0)
	if text := shown(d.config.Metrics.(*prometheus.Registry)); !strings.Contains(text,
		`gatehouse_requests_total{kind="grant",op="acquire",outcome="granted",protocol="resp"} 1`) {
		t.Errorf("metrics lack the grant:\n%s", text)
	}
}

// A client that hangs up while its grant waits is taken out of line, and what it gets at that moment is taken
// back.
func TestGrantOfAClientThatHangsUp(t *testing.T) {
	d, fake := openGrants(t, nil)
	for i := range 20 {
		c := d.dial(t)
		c.send(wire("GH.GRANT", "WANT", "gcra/a"))
		asked := fake.asked(t, i+1)
		var wg sync.WaitGroup
		wg.Go(func() { _ = c.Close() })
		if i%2 == 1 {
			wg.Go(func() {
				grants(asked)
				asked.Decided(asked)
			})
		}
		wg.Wait()
	}
	until(t, "all have left", func() bool { return d.open.Load() == 0 })
	fake.mu.Lock()
	defer fake.mu.Unlock()
	if n := len(fake.canceled); n < 10 || n > 20 {
		t.Errorf("%d of 20 were canceled, want at least those that waited", n)
	}
}

// A client that has left before its command was looked at gets no grant that is held.
func TestGrantOfAClientThatHasLeft(t *testing.T) {
	hold := make(chan struct{})
	d, fake := openGrants(t, func(r *gate.GrantRequest) {
		<-hold
		grants(r)
	})
	c := d.dial(t)
	c.send(wire("GH.GRANT", "WANT", "gcra/a") + wire("GH.GRANT", "ID", "x", "WANT", "lock/a"))
	fake.asked(t, 1)
	_ = c.Conn.(*net.TCPConn).CloseWrite()
	close(hold)
	until(t, "it has left", func() bool { return d.open.Load() == 0 })
	fake.asked(t, 1)
}

// A topup whose client is gone before the answer is taken back, though it never waited in line: a client that
// asks again would pay for it twice.
func TestTopUpOfAClientThatHangsUp(t *testing.T) {
	hold := make(chan struct{})
	d, fake := openGrants(t, func(r *gate.GrantRequest) {
		<-hold
		grants(r)
	})
	c := d.dial(t)
	c.send(wire("GH.TOPUP", "grant/w", "gcra/a", "2"))
	fake.asked(t, 1)
	_ = c.Conn.(*net.TCPConn).SetLinger(0) // a reset, so that the answer cannot be sent
	_ = c.Close()
	close(hold)
	fake.cancels(t, 1)
}

// A topup whose client has left before the store is asked takes nothing.
func TestTopUpOfAClientThatHasLeft(t *testing.T) {
	hold := make(chan struct{})
	d, fake := openGrants(t, func(r *gate.GrantRequest) {
		<-hold
		grants(r)
	})
	c := d.dial(t)
	c.send(wire("GH.GRANT", "WANT", "gcra/a") + wire("GH.TOPUP", "grant/w", "gcra/a", "2"))
	fake.asked(t, 1)
	_ = c.Conn.(*net.TCPConn).CloseWrite()
	close(hold)
	until(t, "it has left", func() bool { return d.open.Load() == 0 })
	fake.asked(t, 1)
}
