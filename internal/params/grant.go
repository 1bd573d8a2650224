package params

import (
	"bytes"
	"math/bits"
	"slices"
	"strings"

	"github.com/gatehousehq/gatehouse"
	"github.com/google/uuid"
)

// The parameters of the members of a grant, by their kind. A limiter has fit besides.
const (
	lockParameters      parameterSet = 1 << costParameter
	semaphoreParameters              = lockParameters | 1<<sizeParameter
	limiterParameters                = semaphoreParameters | 1<<intervalParameter | 1<<burstParameter |
		1<<modeParameter | 1<<guardParameter | 1<<limitsParameter | 1<<zoneParameter
)

const fitParameter = "fit"

// memberParameters returns what a member of a kind may be given, besides fit.
func memberParameters(kind gatehouse.Kind) parameterSet {
	switch kind {
	case gatehouse.Semaphore:
		return semaphoreParameters
	case gatehouse.Lock:
		return lockParameters
	}
	return limiterParameters
}

// parametersOf returns the names of what a member of a kind may be given.
func parametersOf(kind gatehouse.Kind) (all []string) {
	for parameter := range names {
		if memberParameters(kind)>>parameter&1 != 0 {
			all = append(all, names[parameter])
		}
	}
	if !HasHolders(kind) {
		all = append(all, fitParameter)
	}
	return all
}

// MemberValues hold what a request gives for one member of a grant, as text. The zero MemberValues hold
// nothing.
type MemberValues struct {
	values Values
	fit    []byte // nil is absent
}

// Reset makes the MemberValues hold nothing again.
func (m *MemberValues) Reset() {
	m.values.Reset()
	m.fit = nil
}

// Set gives a parameter a value, as that of [Values] does. The error is of CodeInvalid.
func (m *MemberValues) Set(name, value []byte) error {
	parameter, known := parameterNamed(name)
	switch {
	case known && limiterParameters>>parameter&1 != 0:
		m.values.setText(parameter, value)
	case bytes.EqualFold(name, []byte(fitParameter)):
		m.fit = value
		if value == nil {
			m.fit = []byte{} // nil is absent
		}
	default:
		return gatehouse.Errorf(gatehouse.CodeInvalid, "parameter %s is unknown, want one of %s",
			Quote(name), strings.Join(parametersOf(gatehouse.GCRA), " "))
	}
	return nil
}

// Read fills the member, whose key is known. The error is of CodeInvalid and names the parameter, its value
// and what is wanted.
func (m *MemberValues) Read(member *gatehouse.Member) error {
	kind := member.Key.Kind
	if !kind.Limiter() && !HasHolders(kind) {
		return gatehouse.Errorf(gatehouse.CodeInvalid,
			"%s cannot be part of a grant, want a limiter, a semaphore or a lock", kind)
	}
	// A parameter that means nothing here is a misunderstanding, which should not go unnoticed.
	useless := m.values.named &^ memberParameters(kind)
	for ; useless != 0; useless &= useless - 1 {
		if parameter := bits.TrailingZeros32(uint32(useless)); m.values.texts[parameter] != nil {
			return uselessParameter(names[parameter], kind)
		}
	}
	switch {
	case m.fit == nil:
	case HasHolders(kind):
		return uselessParameter(fitParameter, kind)
	case bytes.EqualFold(m.fit, []byte("clip")):
		member.Clip = true
	default:
		return gatehouse.Errorf(gatehouse.CodeInvalid, "fit is %s, want clip", Quote(m.fit))
	}
	// A member means what an acquire of its name with the same parameters means.
	cmd := gatehouse.Command{Op: gatehouse.OpAcquire}
	r := formReader{values: &m.values}
	r.readNumbers(&cmd, kind)
	r.readLimiter(&cmd, kind)
	if n := len(m.values.texts[zoneParameter]); n > maxZone {
		// readLimiter has taken it as it is; for a single name readTexts checks how long it is.
		r.failParameter("zone has %d bytes, want at most %d", n, maxZone)
	}
	// Rules of one meaning are equal, as a retry of a grant is recognized by what it wants.
	switch kind {
	case gatehouse.Semaphore:
		cmd.Rule = gatehouse.Rule{Size: cmd.Size}
	case gatehouse.Lock:
		cmd.Rule = gatehouse.Rule{}
	}
	member.Rule, member.Cost = cmd.Rule, cmd.Cost
	return r.err
}

// uselessParameter is the error about a parameter that a kind has no use for.
func uselessParameter(name string, kind gatehouse.Kind) error {
	return gatehouse.Errorf(gatehouse.CodeInvalid, "%s is a parameter of limiters, want only %s for a %s",
		name, strings.Join(parametersOf(kind), " and "), kind)
}

// GrantValues hold what a request says about a grant as a whole, as text. The zero GrantValues hold nothing.
type GrantValues struct {
	values            Values
	overrun, onExpiry []byte // nil is absent
}

// grantParameters are what the operations on a grant have of the parameters.
var grantParameters = map[gatehouse.Op][]string{
	gatehouse.OpAcquire: {"id", "maxwait", "expires", "overrun", "on-expiry", "owner", "host", "purpose"},
	gatehouse.OpRenew:   {"expires", "fence"},
	gatehouse.OpTopUp:   {"maxwait", "fence"},
	gatehouse.OpSettle:  {"fence"},
	gatehouse.OpRelease: {"fence"},
}

// Set gives a parameter of an operation a value. The error is of CodeInvalid.
func (g *GrantValues) Set(op gatehouse.Op, name, value []byte) error {
	same := func(known string) bool { return strings.EqualFold(known, string(name)) }
	// Unlike those of a single name, parameters that the operation has no use for are refused.
	if !slices.ContainsFunc(grantParameters[op], same) {
		if len(grantParameters[op]) == 0 {
			return gatehouse.Errorf(gatehouse.CodeInvalid, "parameter %s is unknown, want none of a %s",
				Quote(name), op)
		}
		return gatehouse.Errorf(gatehouse.CodeInvalid, "parameter %s is unknown, want one of %s",
			Quote(name), strings.Join(grantParameters[op], " "))
	}
	if value == nil {
		value = []byte{} // nil is absent
	}
	switch {
	case same("overrun"):
		g.overrun = value
	case same("on-expiry"):
		g.onExpiry = value
	default:
		g.values.TrySet(name, value)
	}
	return nil
}

// Reset makes the GrantValues hold nothing again.
func (g *GrantValues) Reset() {
	g.values.Reset()
	g.overrun, g.onExpiry = nil, nil
}

// HasID reports whether an id is given.
func (g *GrantValues) HasID() bool { return g.values.texts[idParameter] != nil }

// Read fills cmd, of which the operation, the id of a grant that is there, and what is wanted are known. A
// grant that has a record and no id gets a random one. The error is of CodeInvalid and names the parameter,
// its value and what is wanted.
func (g *GrantValues) Read(cmd *gatehouse.GrantCommand) error {
	r := formReader{values: &g.values}
	absent := gatehouse.DefaultExpires
	switch cmd.Op {
	case gatehouse.OpAcquire:
		r.readGrantOptions(g, cmd)
		// Without a record there is nothing that could expire, unless the request says how long its holds
		// last.
		if g.values.texts[expiresParameter] == nil && !cmd.HasRecord() {
			absent = 0
		}
		cmd.MaxWait = r.readMillis(maxWaitParameter, gatehouse.Forever, -1)
	case gatehouse.OpRenew:
		// A renew that does not say how long keeps what the acquire has said.
		absent = gatehouse.AsAcquired
	case gatehouse.OpTopUp:
		cmd.MaxWait = r.readMillis(maxWaitParameter, 0, -1)
	}
	if cmd.Op == gatehouse.OpAcquire || cmd.Op == gatehouse.OpRenew {
		cmd.Expires = r.readMillis(expiresParameter, absent, 1)
	}
	cmd.Owner = r.readNames()
	// After the other parameters, which say whether it has a record.
	if cmd.Op == gatehouse.OpAcquire && cmd.ID == "" && cmd.HasRecord() {
		cmd.ID = uuid.NewString()
	}
	cmd.Fence = r.readToken()
	return r.err
}

// readGrantOptions reads what only an acquire has.
func (r *formReader) readGrantOptions(g *GrantValues, cmd *gatehouse.GrantCommand) {
	if id := g.values.texts[idParameter]; id != nil {
		cmd.ID = string(id)
		// An empty id is refused and not taken for none, as a client that sends one counts on finding its
		// grant again.
		if len(id) == 0 || len(id) > gatehouse.MaxGrantID {
			r.failParameter("id has %d bytes, want 1 to %d", len(id), gatehouse.MaxGrantID)
		}
	}
	var ok bool
	if g.overrun != nil {
		cmd.Overrun, ok = gatehouse.ParseOverrun(strings.ToLower(string(g.overrun)))
		if !ok {
			r.failParameter("overrun is %s, want debt or cap", Quote(g.overrun))
		}
	}
	if g.onExpiry != nil {
		cmd.OnExpiry, ok = gatehouse.ParseOnExpiry(strings.ToLower(string(g.onExpiry)))
		if !ok {
			r.failParameter("on-expiry is %s, want estimate, zero or last", Quote(g.onExpiry))
		}
	}
}

// ReadCost reads what a settle, a release or a topup says of one limiter. The error is of CodeInvalid.
func ReadCost(op gatehouse.Op, place, value []byte) (gatehouse.MemberCost, error) {
	var cost gatehouse.MemberCost
	kind, name, _ := bytes.Cut(place, []byte{'/'})
	// The name is checked with the command: what a grant has is known to its record alone.
	k, known := gatehouse.ParseKind(strings.ToLower(string(kind)))
	if !known || !k.Limiter() {
		return cost, gatehouse.Errorf(gatehouse.CodeInvalid,
			"%s is the cost of %s, want it of a limiter of the grant, such as gcra/api", op, Quote(place))
	}
	cost.Key = gatehouse.Key{Kind: k, Name: string(name)}
	// A topup of nothing would only wait; a settle may say that nothing was used.
	least := int64(0)
	if op == gatehouse.OpTopUp {
		least = 1
	}
	var values Values
	values.texts[costParameter] = value
	r := formReader{values: &values}
	cost.Cost = r.readNumber(costParameter, numberRange{0, least, gatehouse.MaxSize})
	// Several costs may be given, so the error says whose it is.
	if r.err != nil {
		return cost, gatehouse.Errorf(gatehouse.CodeInvalid, "%s: %w", Quote(place), r.err)
	}
	return cost, nil
}
