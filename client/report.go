package client

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// reportJSON is a list of holders, or of waiting requests.
type reportJSON struct {
	Size    int64          `json:"size"`
	Held    int64          `json:"held"`
	Closed  *statedClosing `json:"closed"`
	Total   int            `json:"total"`
	Holders []struct {
		namesJSON
		Grant     string         `json:"grant"`
		Since     time.Time      `json:"since"`
		HeldFor   int64          `json:"held_for"`
		ExpiresIn *int64         `json:"expires_in"`
		Renewals  int64          `json:"renewals"`
		Slots     int64          `json:"slots"`
		Fence     uint64         `json:"fence"`
		Evicted   *statedClosing `json:"evicted"`
	} `json:"holders"`
	Waiters []statedWaiter `json:"waiters"`
	Others  []struct {
		Server     uint32 `json:"server"`
		Waiting    int    `json:"waiting"`
		WaitingFor int64  `json:"waiting_for"`
		Age        int64  `json:"age"`
	} `json:"other_servers"`
	Next string `json:"next"`
}

// statedWaiter is one that waits.
type statedWaiter struct {
	ID string `json:"id"`
	namesJSON
	Grant      string `json:"grant"`
	Position   int    `json:"position"`
	Cost       int64  `json:"cost"`
	WaitingFor int64  `json:"waiting_for"`
	Expected   *int64 `json:"expected_wait"`
	Expected90 *int64 `json:"expected_wait_90"`
}

func (w *statedWaiter) entry() gatehouse.WaiterEntry {
	return gatehouse.WaiterEntry{
		ID: w.ID, Owner: w.owner(), Grant: w.Grant, Position: w.Position, Cost: w.Cost,
		WaitingFor: fromMillis(w.WaitingFor), Expected: knownMillis(w.Expected),
		Expected90: knownMillis(w.Expected90),
	}
}

type namesJSON struct {
	Owner   string `json:"owner"`
	Host    string `json:"host"`
	Purpose string `json:"purpose"`
}

func (o *namesJSON) owner() gatehouse.Owner {
	return gatehouse.Owner{Name: o.Owner, Host: o.Host, Purpose: o.Purpose}
}

type statedClosing struct {
	By     string    `json:"by"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

func (c *statedClosing) closing() *gatehouse.Closing {
	if c == nil {
		return nil
	}
	return &gatehouse.Closing{By: c.By, Reason: c.Reason, At: c.At}
}

// knownMillis is a length of time that may not be known.
func knownMillis(ms *int64) time.Duration {
	if ms == nil {
		return gatehouse.Forever
	}
	return fromMillis(*ms)
}

// readReport reads a list.
func readReport(key gatehouse.Key, body []byte) (*gatehouse.Report, error) {
	var told reportJSON
	if err := json.Unmarshal(body, &told); err != nil {
		return nil, notUnderstood(key.String(), body, err)
	}
	report := &gatehouse.Report{
		Limit: told.Size, Used: told.Held, Closed: told.Closed.closing(), Total: told.Total, Next: told.Next,
	}
	// A time that is missing is not known, and one of -1 has no end: both are Forever.
	for i := range told.Holders {
		h := &told.Holders[i]
		report.Holders = append(report.Holders, gatehouse.HolderEntry{
			Fence: h.Fence, Owner: h.owner(), Grant: h.Grant,
			Since: h.Since, HeldFor: fromMillis(h.HeldFor),
			ExpiresAfter: knownMillis(h.ExpiresIn), Renewals: h.Renewals, Slots: h.Slots,
			Evicted: h.Evicted.closing(),
		})
	}
	for i := range told.Waiters {
		report.Waiters = append(report.Waiters, told.Waiters[i].entry())
	}
	for _, o := range told.Others {
		report.Others = append(report.Others, gatehouse.OtherLine{
			Server: o.Server, Waiting: o.Waiting, WaitingFor: fromMillis(o.WaitingFor),
			Seen: fromMillis(o.Age),
		})
	}
	return report, nil
}

// maxListed is the most names in one answer.
const maxListed = 1000

// Names returns the names of one kind that come after the given one, in order, at most the given number. It
// may take several requests, between which names come and go.
func (c *Client) Names(
	ctx context.Context, kind gatehouse.Kind, after string, most int,
) (names []string, err error) {
	return readNames[string](ctx, c, namesQuery{kind: kind, after: after}, most)
}

// detailsJSON is what a list tells of a name.
type detailsJSON struct {
	Name    string         `json:"name"`
	Limit   int64          `json:"limit"`
	Used    int64          `json:"used"`
	Holders int            `json:"holders"`
	Waiting int            `json:"waiting"`
	Granted int64          `json:"granted"`
	Refused int64          `json:"refused"`
	Since   time.Time      `json:"since"`
	Closed  *statedClosing `json:"closed"`
}

// NameDetails returns the details of the names of one kind that begin with a prefix, in order, at most the
// given number. It may take several requests, between which names come and go.
func (c *Client) NameDetails(
	ctx context.Context, kind gatehouse.Kind, prefix string, most int,
) (all []gatehouse.NameDetails, err error) {
	list := namesQuery{kind: kind, prefix: prefix, details: true}
	names, err := readNames[detailsJSON](ctx, c, list, most)
	for i := range names {
		n := &names[i]
		all = append(all, gatehouse.NameDetails{
			Name: n.Name, Limit: n.Limit, Used: n.Used, Holders: n.Holders, Waiting: n.Waiting,
			Granted: n.Granted, Refused: n.Refused, Since: n.Since, Closed: n.Closed.closing(),
		})
	}
	return all, err
}

// A namesQuery asks for a part of the names of a kind.
type namesQuery struct {
	kind          gatehouse.Kind
	prefix, after string
	limit         int
	details       bool
}

// readNames reads the names of a list part by part, at most the given number.
func readNames[T any](ctx context.Context, c *Client, list namesQuery, most int) (all []T, err error) {
	for len(all) < most {
		var page struct {
			Names []T    `json:"names"`
			Next  string `json:"next"`
		}
		// A server lists maxListed at most, and says where the next part begins.
		list.limit = most - len(all)
		if err := c.readList(ctx, &list, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Names...)
		if page.Next == "" {
			break
		}
		list.after = page.Next
	}
	return all, nil
}

// readList reads one part into page.
func (c *Client) readList(ctx context.Context, l *namesQuery, page any) error {
	r := exchange{subject: l.kind.String(), op: gatehouse.OpStats, repeatable: true}
	return c.sendExchange(ctx, &r, func(time.Duration) message {
		var p parameters
		p.addNumber("limit", int64(min(l.limit, maxListed)))
		p.addIfAny("after", l.after)
		p.addIfAny("prefix", l.prefix)
		if l.details {
			p.addText("details", "true")
		}
		path := "/v1/" + l.kind.String()
		return message{method: http.MethodGet, path: path, rawPath: path, query: string(p)}
	}, func(a *reply) error {
		if a.status != http.StatusOK {
			return problemOf(l.kind.String(), a)
		}
		return json.Unmarshal(a.body, page)
	})
}
