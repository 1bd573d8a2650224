package decisions

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/glob"
	"github.com/prometheus/client_golang/prometheus"
)

// counts are what is counted by kind, by rule and by user.
type counts struct {
	// Of capacity and server, which are no kinds of the gate, only what is refused to users is counted.
	kinds  [int(glob.Server) + 1]counted
	rules  []counted // in the order of the configuration; the last is for names without a rule
	names  []string
	ruleOf func(gatehouse.Key) int

	descriptions descriptions

	mu    sync.RWMutex
	users map[string]*counted
}

// counted is what is counted of one kind, rule or user. Each has cache lines of its own, as others count at
// the same time.
type counted struct {
	granted, refused atomic.Uint64
	near             atomic.Uint64
	waited           atomic.Int64 // ns
	vanished         atomic.Uint64
	rights, quota    atomic.Uint64 // refusals of what a user may not do, and has too much of
	_                [8]byte
}

// maxUsers is how many users have series of their own.
const maxUsers = 1000

// otherUsers is the label of all further users. No user can have this name.
const otherUsers = "(others)"

// noRule is the label of names to which no rule applies.
const noRule = "(none)"

func (c *counts) setRules(config *Config) {
	c.users, c.descriptions = make(map[string]*counted), newDescriptions()
	// Then rules stays nil, and a decision does not pay for finding the rule of its name.
	if len(config.Rules) == 0 {
		return
	}
	c.names = append(append(c.names, config.Rules...), noRule)
	c.rules, c.ruleOf = make([]counted, len(c.names)), config.RuleOf
}

// count counts uses. Decisions by kind are counted where they are answered, with their protocol.
func (c *counts) count(u *uses) {
	c.kinds[u.key.Kind].addMore(u)
	if c.rules != nil {
		c.rule(*u.key).add(u)
	}
	// An owner that a client only tells has no series: clients could make up any number of them.
	if u.known {
		c.user(u.user).add(u)
	}
}

// rule returns the counts of the rule for a name.
func (c *counts) rule(key gatehouse.Key) *counted {
	i := c.ruleOf(key)
	// setRules has put the counts of names without a rule last.
	if i < 0 {
		i = len(c.rules) - 1
	}
	return &c.rules[i]
}

// CountVanished counts a record of a name that a shared store has lost before its time.
func (o *Recorder) CountVanished(key gatehouse.Key) {
	o.counts.kinds[key.Kind].vanished.Add(1)
	if o.counts.rules != nil {
		o.counts.rule(key).vanished.Add(1)
	}
}

// CountRefusedUser counts what was refused to a user, by its rights or by a quota. A key without a kind or a
// name is that of what is about no name alone.
func (o *Recorder) CountRefusedUser(user string, key gatehouse.Key, quota bool) {
	c := &o.counts
	c.kinds[key.Kind].addRefused(quota)
	c.user(user).addRefused(quota)
	// Rules are about names of the gate: not about lists, and not about capacity and parts of the server.
	if c.rules != nil && key.Name != "" && int(key.Kind) < gatehouse.Kinds {
		c.rule(key).addRefused(quota)
	}
}

func (c *counted) addRefused(quota bool) {
	if quota {
		c.quota.Add(1)
	} else {
		c.rights.Add(1)
	}
}

func (c *counted) add(u *uses) {
	if u.granted > 0 {
		c.granted.Add(uint64(u.granted))
	}
	if u.refused > 0 {
		c.refused.Add(uint64(u.refused))
	}
	c.addMore(u)
}

// addMore adds what most uses have nothing of.
func (c *counted) addMore(u *uses) {
	if u.near > 0 {
		c.near.Add(uint64(u.near))
	}
	if u.waits > 0 {
		c.waited.Add(int64(u.waited))
	}
}

// user returns the counts of a user.
func (c *counts) user(name string) *counted {
	c.mu.RLock()
	known := c.users[name]
	// There are more than maxUsers once the others have their count, so this needs no second lock.
	if known == nil && len(c.users) > maxUsers {
		known = c.users[otherUsers]
	}
	c.mu.RUnlock()
	if known != nil {
		return known
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// It is looked at again, as another goroutine may have added the user between the locks.
	if c.users[name] == nil && len(c.users) >= maxUsers {
		name = otherUsers
	}
	if c.users[name] == nil {
		c.users[name] = new(counted)
	}
	return c.users[name]
}

// descriptions are those of the metrics. None has a label with a name of a controller.
type descriptions struct {
	nearByKind, waitedByKind, vanishedByKind, rightsByKind, vanishedByRule *prometheus.Desc

	byRule, byUser groupDescriptions
}

// groupDescriptions are those of what is counted by rule or by user.
type groupDescriptions struct{ decisions, near, waited, rights *prometheus.Desc }

// The ends of HELP texts.
const (
	helpNear     = "Grants that left less than a tenth of a limit of at least 10"
	helpRights   = "Requests of known users that were refused, as they may not do it or have reached a quota"
	helpVanished = "Records that this server knew and a shared store has lost before their time"
	helpWaited   = "Time that decided requests had waited in line, by the store's clock"
)

func newDescriptions() descriptions {
	// Rules and users have the same metrics, which differ in the label alone.
	group := func(label string) groupDescriptions {
		desc := func(name, help string, labels ...string) *prometheus.Desc {
			return prometheus.NewDesc("gatehouse_"+label+"_"+name, help+", by "+label+".",
				append([]string{label}, labels...), nil)
		}
		return groupDescriptions{
			desc("decisions_total", "Grants and refusals of what uses a name", "outcome"),
			desc("near_limit_total", helpNear), desc("waited_seconds_total", helpWaited),
			desc("rights_refused_total", helpRights, "reason"),
		}
	}
	return descriptions{
		prometheus.NewDesc("gatehouse_near_limit_total", helpNear+", by kind.", []string{"kind"}, nil),
		prometheus.NewDesc("gatehouse_waited_seconds_total", helpWaited+", by kind.", []string{"kind"}, nil),
		prometheus.NewDesc("gatehouse_vanished_total", helpVanished+", by kind.", []string{"kind"}, nil),
		prometheus.NewDesc("gatehouse_rights_refused_total", helpRights+", by kind.",
			[]string{"kind", "reason"}, nil),
		prometheus.NewDesc("gatehouse_rule_vanished_total", helpVanished+", by rule.", []string{"rule"}, nil),
		group("rule"), group("user"),
	}
}

// Describe implements [prometheus.Collector].
func (o *Recorder) Describe(to chan<- *prometheus.Desc) {
	d := &o.counts.descriptions
	to <- d.nearByKind
	to <- d.waitedByKind
	to <- d.vanishedByKind
	to <- d.rightsByKind
	to <- d.vanishedByRule
	for _, group := range []groupDescriptions{d.byRule, d.byUser} {
		to <- group.decisions
		to <- group.near
		to <- group.waited
		to <- group.rights
	}
}

// Collect implements [prometheus.Collector]. It shows what was counted and nothing else.
func (o *Recorder) Collect(to chan<- prometheus.Metric) {
	c := &o.counts
	for kind := range c.kinds {
		label := glob.KindName(gatehouse.Kind(kind)) // which there are few of
		sendCount(to, c.descriptions.nearByKind, float64(c.kinds[kind].near.Load()), label)
		waited := time.Duration(c.kinds[kind].waited.Load())
		sendCount(to, c.descriptions.waitedByKind, waited.Seconds(), label)
		sendCount(to, c.descriptions.vanishedByKind, float64(c.kinds[kind].vanished.Load()), label)
		c.kinds[kind].sendRights(to, c.descriptions.rightsByKind, label)
	}
	for i := range c.rules {
		c.rules[i].send(to, &c.descriptions.byRule, c.names[i])
		sendCount(to, c.descriptions.vanishedByRule, float64(c.rules[i].vanished.Load()), c.names[i])
	}
	c.mu.RLock()
	// Sending waits for the reader, and decisions must not wait for that.
	users := maps.Clone(c.users)
	c.mu.RUnlock()
	for name, counted := range users {
		counted.send(to, &c.descriptions.byUser, name)
	}
}

// send sends the counts of one rule or user.
func (c *counted) send(to chan<- prometheus.Metric, as *groupDescriptions, label string) {
	sendCount(to, as.decisions, float64(c.granted.Load()), label, gatehouse.Granted.String())
	sendCount(to, as.decisions, float64(c.refused.Load()), label, gatehouse.Refused.String())
	sendCount(to, as.near, float64(c.near.Load()), label)
	sendCount(to, as.waited, time.Duration(c.waited.Load()).Seconds(), label)
	c.sendRights(to, as.rights, label)
}

// sendRights sends what was refused to users.
func (c *counted) sendRights(to chan<- prometheus.Metric, as *prometheus.Desc, label string) {
	sendCount(to, as, float64(c.rights.Load()), label, "forbidden")
	sendCount(to, as, float64(c.quota.Load()), label, "quota")
}

func sendCount(to chan<- prometheus.Metric, desc *prometheus.Desc, value float64, labels ...string) {
	// Without this each kind and rule would have series for what never happens there.
	if value > 0 {
		to <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, value, labels...)
	}
}
