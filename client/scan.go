package client

import (
	"bytes"
	"strconv"
)

// scanDecision reads an answer that is one object of texts without escapes, whole numbers and true or false,
// as most are. ok is false for all others, which encoding/json then reads: it takes several times as long.
func scanDecision(body []byte, told *decisionJSON) (ok bool) {
	rest, ok := bytes.CutPrefix(bytes.TrimSpace(body), []byte{'{'})
	for ok && len(rest) > 0 {
		var name, value []byte
		name, rest, ok = scanText(rest)
		if !ok || len(rest) == 0 || rest[0] != ':' {
			return false
		}
		rest = rest[1:]
		// A text is read first, since it may have commas and braces in it.
		if len(rest) > 0 && rest[0] == '"' {
			value, rest, ok = scanText(rest)
			ok = ok && told.setText(string(name), string(value))
		} else {
			end := bytes.IndexAny(rest, ",}")
			if end < 0 {
				return false
			}
			value, rest = rest[:end], rest[end:]
			ok = told.setNumber(string(name), value)
		}
		if !ok || len(rest) == 0 {
			return false
		}
		// With anything behind the object it is no answer, which encoding/json then says.
		if rest[0] == '}' {
			return len(rest) == 1
		}
		ok, rest = rest[0] == ',', rest[1:]
	}
	return false
}

// scanText reads a text in quotes, and returns what is behind it. ok is false if it has escapes or other
// letters than those of ASCII.
func scanText(from []byte) (text, rest []byte, ok bool) {
	if len(from) == 0 || from[0] != '"' {
		return nil, nil, false
	}
	for i := 1; i < len(from); i++ {
		// What is not plain ASCII would need decoding, which encoding/json does.
		switch c := from[i]; {
		case c == '"':
			return from[1:i], from[i+1:], true
		case c == '\\' || c < ' ' || c >= 0x7f:
			return nil, nil, false
		}
	}
	return nil, nil, false
}

// setText sets a member that is a text.
func (j *decisionJSON) setText(name, value string) (known bool) {
	switch name {
	case "outcome":
		j.Outcome = value
	case "message":
		j.Message = value
	case "detail":
		j.Detail = value
	case "key": // the command has it
	default:
		return false
	}
	return true
}

// setNumber sets a member that is a number. One that is not known here may be anything, and is not for this
// reader.
func (j *decisionJSON) setNumber(name string, value []byte) (ok bool) {
	if name == "granted" { // the outcome says the same
		return true
	}
	// A fencing token has 64 bits, and no sign.
	if name == "fence" {
		n, err := strconv.ParseUint(string(value), 10, 64)
		j.Fence = n
		return err == nil
	}
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil {
		return false
	}
	switch name {
	case "limit":
		j.Limit = n
	case "remaining":
		j.Remaining = n
	case "retry_after":
		j.RetryAfter = n
	case "reset_after":
		j.ResetAfter = n
	case "expires_after":
		j.ExpiresAfter = n
	case "delay":
		j.Delay = n
	case "value":
		j.Value = n
	default:
		return false
	}
	return true
}
