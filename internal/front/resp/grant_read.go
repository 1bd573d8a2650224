package resp

import (
	"bytes"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/params"
)

// grantPlace is what the place of a grant begins with, as other kinds' names do.
const grantPlace = "grant/"

// isGrant reports whether a place, kind/name, is that of a grant.
func isGrant(place []byte) bool {
	return len(place) >= len(grantPlace) && bytes.EqualFold(place[:len(grantPlace)], []byte(grantPlace))
}

// takeDetails takes WITH DETAILS off the arguments. It is no parameter: it chooses the form of the answer.
func (g *jointCall) takeDetails(rest [][]byte) (taken bool, err error) {
	if !bytes.EqualFold(rest[0], []byte("with")) {
		return false, nil
	}
	if !bytes.EqualFold(rest[1], []byte("details")) {
		return false, gatehouse.Errorf(gatehouse.CodeInvalid, "with is %s, want DETAILS",
			params.Quote(rest[1]))
	}
	g.details = true
	return true, nil
}

func noValue(word []byte) error {
	return gatehouse.Errorf(gatehouse.CodeInvalid, "parameter %s has no value, want PARAMETER value",
		params.Quote(word))
}

// readGrant reads GH.GRANT [PARAMETER value]... WANT kind/name [PARAMETER value]... [WANT ...]...
func (s *session) readGrant(g *jointCall, args [][]byte) error {
	cmd := &g.Command
	cmd.Op = gatehouse.OpAcquire
	var values params.GrantValues
	var key gatehouse.Key // of the name that is read
	var member params.MemberValues
	for rest := args[1:]; len(rest) > 0; rest = rest[2:] {
		if len(rest) == 1 {
			return noValue(rest[0])
		}
		if bytes.EqualFold(rest[0], []byte("want")) {
			// The next name ends the one before.
			if err := g.addMember(key, &member); err != nil {
				return err
			}
			var err error
			key, err = s.readMemberKey(rest[1])
			if err != nil {
				return err
			}
			member.Reset()
			continue
		}
		taken, err := g.takeDetails(rest)
		switch {
		case err != nil || taken:
		case key.Kind == 0:
			err = values.Set(cmd.Op, rest[0], rest[1])
		default:
			err = wrapMember(key, member.Set(rest[0], rest[1]))
		}
		if err != nil {
			return err
		}
	}
	if err := g.addMember(key, &member); err != nil {
		return err
	}
	if len(cmd.Want) == 0 {
		return gatehouse.Errorf(gatehouse.CodeInvalid,
			"grant has no WANT kind/name, want 1 to %d of them", gatehouse.MaxMembers)
	}
	if err := values.Read(cmd); err != nil {
		return err
	}
	return cmd.Check()
}

// wrapMember says of which name an error is, if there is one.
func wrapMember(key gatehouse.Key, err error) error {
	if err == nil {
		return nil
	}
	return gatehouse.Errorf(gatehouse.CodeInvalid, "%s: %w", key, err)
}

// readMemberKey reads a name that a grant wants.
func (s *session) readMemberKey(place []byte) (key gatehouse.Key, err error) {
	kind, name, ok := bytes.Cut(place, []byte{'/'})
	if !ok {
		return key, gatehouse.Errorf(gatehouse.CodeInvalid, "want is %s, want kind/name, such as gcra/user:1",
			params.Quote(place))
	}
	key.Kind, err = parseKind(kind)
	key.Name = s.loop.names.internName(name)
	return key, err
}

// addMember adds the name that was read to what the grant wants, if there is one.
func (g *jointCall) addMember(key gatehouse.Key, values *params.MemberValues) error {
	if key.Kind == 0 {
		return nil
	}
	m := gatehouse.Member{Key: key}
	err := values.Read(&m)
	if err == nil && len(g.Command.Want) == gatehouse.MaxMembers {
		return gatehouse.Errorf(gatehouse.CodeInvalid, "grant wants more than %d names", gatehouse.MaxMembers)
	}
	g.Command.Want = append(g.Command.Want, m)
	return wrapMember(key, err)
}

// readGrantOp reads GH.<OP> grant/ID [kind/name n]... [PARAMETER value]...
func (g *jointCall) readGrantOp(op gatehouse.Op, args [][]byte) error {
	cmd := &g.Command
	cmd.Op = op
	cmd.ID = string(args[1][len(grantPlace):])
	var values params.GrantValues
	takesCosts := op == gatehouse.OpTopUp || op == gatehouse.OpSettle || op == gatehouse.OpRelease
	for rest := args[2:]; len(rest) > 0; rest = rest[2:] {
		if len(rest) == 1 {
			return noValue(rest[0])
		}
		taken, err := g.takeDetails(rest)
		switch {
		case err != nil || taken:
		// A name of a parameter has no slash, and that of a limiter has one.
		case takesCosts && bytes.IndexByte(rest[0], '/') >= 0:
			var cost gatehouse.MemberCost
			cost, err = params.ReadCost(op, rest[0], rest[1])
			cmd.Costs = append(cmd.Costs, cost)
		default:
			err = values.Set(op, rest[0], rest[1])
		}
		if err != nil {
			return err
		}
	}
	if err := values.Read(cmd); err != nil {
		return err
	}
	return cmd.Check()
}
