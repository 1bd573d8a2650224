package http

import (
	"bytes"
	"cmp"
	"strings"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/params"
)

// A severalTarget is a path of what concerns several names: grants, or a batch.
type severalTarget struct {
	batch bool
	id    []byte       // of a grant, still encoded; nil for a new one
	op    gatehouse.Op // of a grant
	allow string       // the methods that the path has
	odd   bool         // the path is not in the proper form: letter case, or a slash at the end
}

// grantOps are the operations on a grant that have a path of their own.
var grantOps = map[string]gatehouse.Op{
	"renew": gatehouse.OpRenew, "topup": gatehouse.OpTopUp, "settle": gatehouse.OpSettle,
	"release": gatehouse.OpRelease,
}

// The paths of what concerns several names.
const (
	grantsPath = "/v1/grants"
	batchPath  = "/v1/batch"
)

// readSeveral takes a path apart that begins with grantsPath or is batchPath. ok is false for any other.
func readSeveral(path []byte) (t severalTarget, ok bool) {
	if len(path) < len(batchPath) {
		return t, false
	}
	if trimmed := bytes.TrimSuffix(path, []byte{'/'}); bytes.EqualFold(trimmed, []byte(batchPath)) {
		return severalTarget{batch: true, allow: "POST, OPTIONS", odd: string(path) != batchPath}, true
	}
	if len(path) < len(grantsPath) || !bytes.EqualFold(path[:len(grantsPath)], []byte(grantsPath)) {
		return t, false
	}
	t.odd = string(path[:len(grantsPath)]) != grantsPath
	rest := path[len(grantsPath):]
	if len(rest) > 0 && rest[0] != '/' {
		return t, false
	}
	if len(rest) > 0 && rest[len(rest)-1] == '/' {
		t.odd = true
		rest = rest[:len(rest)-1]
	}
	if len(rest) == 0 {
		t.op, t.allow = gatehouse.OpAcquire, "POST, OPTIONS"
		return t, true
	}
	// The id is left encoded, so that what is no id is found by whoever decodes it.
	id, op, more := bytes.Cut(rest[1:], []byte{'/'})
	if len(id) == 0 {
		return t, false
	}
	t.id, t.op, t.allow = id, gatehouse.OpPeek, "GET, OPTIONS"
	if more {
		lower := strings.ToLower(string(op))
		t.op, ok = grantOps[lower]
		t.odd = t.odd || string(op) != lower
		t.allow = "POST, OPTIONS"
		return t, ok
	}
	return t, true
}

// properPath returns the form of the path to which all others are redirected.
func (t *severalTarget) properPath() string {
	switch {
	case t.batch:
		return batchPath
	case t.id == nil:
		return grantsPath
	case t.op == gatehouse.OpPeek:
		return grantsPath + "/" + string(t.id)
	}
	return grantsPath + "/" + string(t.id) + "/" + t.op.String()
}

// maxBatchBody is the longest body of a batch: a thousand commands of a kilobyte.
const maxBatchBody = 1 << 20

// bodyLimit returns the longest body of a request with this target.
func bodyLimit(uri []byte) int {
	if path, _ := splitURI(uri); string(path) == batchPath {
		return maxBatchBody
	}
	return maxBody
}

// readGrant reads the body of an operation on a grant into the command, of which the operation and the id of
// a grant that is there are known.
func (g *grantTask) readGrant(body []byte) error {
	cmd, values := &g.Command, &g.values
	// What has nothing to say about a grant that is there needs no body.
	if len(bytes.TrimSpace(body)) == 0 && (cmd.Op == gatehouse.OpRenew || cmd.Op == gatehouse.OpRelease) {
		return values.Read(cmd)
	}
	r, err := newJSONReader(body)
	if err != nil {
		return err
	}
	err = r.readObject("body", func(name []byte) error {
		if cmd.Op == gatehouse.OpAcquire && bytes.EqualFold(name, []byte("want")) {
			return g.readWant(&r)
		}
		if cmd.Op == gatehouse.OpAcquire && isOwner(name) {
			return r.readOwner(name, values)
		}
		v, err := r.readScalar(name)
		// A name of a parameter has no slash, and that of a limiter has one.
		isCost := bytes.IndexByte(name, '/') >= 0 && takesCosts(cmd.Op)
		switch {
		case err == nil && isCost:
			return addCost(cmd, name, &v)
		case err != nil && !isCost:
			// That there is no such parameter comes before what is wrong with its value.
			return cmp.Or(values.Set(cmd.Op, name, nil), err)
		case err != nil:
			return err
		}
		if err := values.Set(cmd.Op, name, v.text); err != nil {
			return err
		}
		return v.checkForm(name)
	})
	if err == nil {
		err = r.endText()
	}
	if err != nil {
		return err
	}
	if cmd.Op == gatehouse.OpAcquire && len(cmd.Want) == 0 {
		return gatehouse.Errorf(gatehouse.CodeInvalid, "want is missing or empty, want 1 to %d names",
			gatehouse.MaxMembers)
	}
	if len(cmd.Costs) == 0 && (cmd.Op == gatehouse.OpTopUp || cmd.Op == gatehouse.OpSettle) {
		return gatehouse.Errorf(gatehouse.CodeInvalid,
			`body has no cost, want one for a limiter of the grant, such as {"gcra/api":5}`)
	}
	return values.Read(cmd)
}

// isOwner reports whether a name is that of who a grant is for, or of a part of that.
func isOwner(name []byte) bool {
	return bytes.EqualFold(name, []byte("owner")) || bytes.EqualFold(name, []byte("host")) ||
		bytes.EqualFold(name, []byte("purpose"))
}

// ownerParts are the parameters that the members of an owner are elsewhere.
var ownerParts = map[string]string{"name": "owner", "host": "host", "purpose": "purpose"}

// readOwner reads for whom a grant is. Everything about that is in one object.
func (r *jsonReader) readOwner(name []byte, values *params.GrantValues) error {
	// Its parts are parameters too, by which an owner would be given in a query.
	if !bytes.EqualFold(name, []byte("owner")) {
		return gatehouse.Errorf(gatehouse.CodeInvalid, "%s stands alone, want it in an owner, such as "+
			`"owner":{"name":"train-a","host":"g1"}`, bytes.ToLower(name))
	}
	return r.readObject("owner", func(part []byte) error {
		parameter, known := ownerParts[strings.ToLower(string(part))]
		if !known {
			return gatehouse.Errorf(gatehouse.CodeInvalid, "owner has %s, want name, host and purpose only",
				params.Quote(part))
		}
		v, err := r.readScalar(part)
		if err != nil {
			return err
		}
		// A number or a word such as null would become a text that the client did not mean.
		if v.form != jsonText {
			return gatehouse.Errorf(gatehouse.CodeInvalid, "owner: %s is %s, want a text",
				bytes.ToLower(part), jsonTypeNames[v.form])
		}
		return values.Set(gatehouse.OpAcquire, []byte(parameter), v.text)
	})
}

// takesCosts reports whether an operation on a grant is told costs of limiters.
func takesCosts(op gatehouse.Op) bool {
	return op == gatehouse.OpTopUp || op == gatehouse.OpSettle || op == gatehouse.OpRelease
}

// addCost adds the cost of a limiter, which is called kind/name.
func addCost(cmd *gatehouse.GrantCommand, place []byte, v *jsonScalar) error {
	if v.form != jsonNumber {
		return gatehouse.Errorf(gatehouse.CodeInvalid, "%s is %s, want a number",
			params.Quote(place), jsonTypeNames[v.form])
	}
	cost, err := params.ReadCost(cmd.Op, place, v.text)
	if err == nil && len(cmd.Costs) == gatehouse.MaxMembers {
		err = gatehouse.Errorf(gatehouse.CodeInvalid, "body has more than %d costs", gatehouse.MaxMembers)
	}
	cmd.Costs = append(cmd.Costs, cost)
	return err
}

// usualMembers is how many names most grants have at most.
const usualMembers = 4

// readWant reads the names that a grant wants.
func (g *grantTask) readWant(r *jsonReader) error {
	cmd := &g.Command
	return r.readArray("want", func(i int) error {
		// A list that is too long is not read to its end.
		if i == gatehouse.MaxMembers {
			return gatehouse.Errorf(gatehouse.CodeInvalid, "want has more than %d names", i)
		}
		if cap(cmd.Want) == 0 {
			cmd.Want = make([]gatehouse.Member, 0, usualMembers)
		}
		// A task serves one request after the other, and these mostly want the same names again.
		before := ""
		if i < cap(cmd.Want) {
			before = cmd.Want[:i+1][i].Key.Name
		}
		cmd.Want = append(cmd.Want, gatehouse.Member{Key: gatehouse.Key{Name: before}})
		m := &cmd.Want[i]
		if err := g.readMember(r, m); err != nil {
			return gatehouse.Errorf(gatehouse.CodeInvalid, "want[%d]: %w", i, err)
		}
		for j := range cmd.Want[:i] {
			if cmd.Want[j].Key == m.Key {
				return gatehouse.Errorf(gatehouse.CodeInvalid, "want[%d]: %s is want[%d] already, want each "+
					"name once", i, m.Key, j)
			}
		}
		return nil
	})
}

// readMember reads one name that a grant wants, and its parameters. The member has the name that stood in its
// place before.
func (g *grantTask) readMember(r *jsonReader, m *gatehouse.Member) error {
	values := &g.member
	values.Reset()
	err := r.readObject("this", func(name []byte) error {
		v, err := r.readScalar(name)
		kind, ok := gatehouse.ParseKind(string(name))
		switch {
		case err != nil && !ok:
			return cmp.Or(values.Set(name, nil), err)
		case err != nil:
			return err
		// The kind may come behind the parameters, so that these are looked at once all are there.
		case ok:
			return setKey(&m.Key, kind, &v)
		}
		if err := values.Set(name, v.text); err != nil {
			return err
		}
		return v.checkForm(name)
	})
	if err != nil {
		return err
	}
	if m.Key.Kind == 0 {
		return gatehouse.Errorf(gatehouse.CodeInvalid,
			`no name is given, want one by its kind, such as "gcra":"api"`)
	}
	if bad := gatehouse.NameFault(m.Key.Name); bad != "" {
		return gatehouse.Errorf(gatehouse.CodeInvalid, "%s: name %s", m.Key.Kind, bad)
	}
	return values.Read(m)
}

// setKey notes the name that an object is about, which has its kind as name. The key may have that name
// already, and no kind.
func setKey(key *gatehouse.Key, kind gatehouse.Kind, v *jsonScalar) error {
	if v.form != jsonText {
		return gatehouse.Errorf(gatehouse.CodeInvalid, "%s is %s, want a name as text", kind,
			jsonTypeNames[v.form])
	}
	if key.Kind != 0 {
		return gatehouse.Errorf(gatehouse.CodeInvalid, "%s and %s are both given, want one name",
			key.Kind, kind)
	}
	key.Kind = kind
	if key.Name != string(v.text) {
		key.Name = string(v.text)
	}
	return nil
}
