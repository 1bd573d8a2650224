package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/gatehousehq/gatehouse"
)

// eventStreamType is the content type of an answer that tells first how the request waits.
const eventStreamType = "text/event-stream"

// A LinePlace is where a grant waits: in the line of one of its names.
type LinePlace struct {
	Key gatehouse.Key
	gatehouse.WaiterEntry
}

// FollowGrant is [Client.DoGrant] of an acquire with an ID that calls tell with its place in each line while
// it waits: soon, whenever the place changes, and four times a minute. tell is called by this goroutine.
func (c *Client) FollowGrant(
	ctx context.Context, cmd gatehouse.GrantCommand, tell func(LinePlace),
) (gatehouse.GrantDecision, error) {
	if cmd.Op != gatehouse.OpAcquire || cmd.ID == "" {
		return gatehouse.GrantDecision{}, gatehouse.Errorf(gatehouse.CodeInvalid,
			"%s: an acquire without an id is not told its place", cmd.String())
	}
	return c.askGrant(ctx, cmd, tell)
}

// readEvents reads the events of an answer until the outcome, which it returns as an answer of its own.
func readEvents(from io.Reader, header http.Header, tell func(LinePlace)) (reply, error) {
	lines := bufio.NewReader(from)
	name := ""
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return reply{}, err // also io.EOF: the outcome is missing
		}
		if text, ok := bytes.CutPrefix(line, []byte("event: ")); ok {
			name = string(bytes.TrimSpace(text))
			continue
		}
		data, ok := bytes.CutPrefix(line, []byte("data: "))
		switch {
		// A blank line ends an event, and a comment only keeps the connection open.
		case !ok:
		case name == "waiting":
			// The event has the name as a member of an answer has it, and the rest as a list of waiters.
			var member memberJSON
			var waiter statedWaiter
			err := errors.Join(json.Unmarshal(data, &member), json.Unmarshal(data, &waiter))
			if err != nil {
				return reply{}, err
			}
			tell(LinePlace{member.key, waiter.entry()})
		case name == gatehouse.Granted.String():
			return reply{http.StatusOK, header, data}, nil
		default:
			// Any other outcome has the status that it would have had as an answer of its own.
			var told struct {
				Status int `json:"status"`
			}
			if err := json.Unmarshal(data, &told); err != nil {
				return reply{}, err
			}
			return reply{told.Status, header, data}, nil
		}
	}
}
