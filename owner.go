package gatehouse

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// MaxText is the length, in bytes, of each text about an owner, and of the reason of an evict or a close.
const MaxText = 256

// An Owner says for whom a command is, to the people who look at holders and waiters. Nothing is decided by
// it. Each text is optional, and has at most MaxText bytes of what a name may consist of. An Owner must not
// be changed once a command has it: what is held keeps it.
type Owner struct {
	Name    string // such as "train-a"
	Host    string // where it runs
	Purpose string // what for
}

// check returns an error of CodeInvalid when a text of the owner is none.
func (o *Owner) check(key Key) error {
	for _, text := range [...]struct{ field, value string }{
		{"Owner.Name", o.Name}, {"Owner.Host", o.Host}, {"Owner.Purpose", o.Purpose},
	} {
		if bad := TextFault(text.value); bad != "" {
			return Errorf(CodeInvalid, "%s: %s %s", key, text.field, bad)
		}
	}
	return nil
}

// TextFault says what is wrong with a text about an owner, or with a reason, "" when nothing is: `has 300
// bytes, want at most 256`. The empty text stands for none.
func TextFault(text string) string {
	switch {
	// First of all, so that no long text is looked through.
	case len(text) > MaxText:
		return fmt.Sprintf("has %d bytes, want at most %d", len(text), MaxText)
	case !utf8.ValidString(text):
		return fmt.Sprintf("%q is not valid UTF-8", text)
	case strings.ContainsFunc(text, isControl):
		return fmt.Sprintf("%q has a control character", text)
	case hasDirectionMark(text):
		return fmt.Sprintf("%+q has a mark that changes the direction of text", text)
	}
	return ""
}

// HolderID is the public id of the hold with a fencing token. It names the hold in lists of holders and in an
// evict, as long as the hold lasts. It is not a key: it cannot renew or release the hold.
func HolderID(fence uint64) string { return "h" + strconv.FormatUint(fence, idBase) }

// ParseHolderID returns the fencing token of a HolderID; ok is false for any other text.
func ParseHolderID(id string) (fence uint64, ok bool) { return parseID(id, "h") }

// WaiterID is the public id of the command that waits with a ticket.
func WaiterID(ticket uint64) string { return "w" + strconv.FormatUint(ticket, idBase) }

// ParseWaiterID returns the ticket of a WaiterID; ok is false for any other text.
func ParseWaiterID(id string) (ticket uint64, ok bool) { return parseID(id, "w") }

// The bounds of one list of holders or waiters.
const (
	DefaultListed = 100
	MaxListed     = 1000
)

// idBase makes ids short, of digits and small letters.
const idBase = 36

func parseID(id, prefix string) (number uint64, ok bool) {
	digits, ok := strings.CutPrefix(id, prefix)
	number, err := strconv.ParseUint(digits, idBase, 64)
	return number, ok && err == nil
}

// A Report answers OpHolders and OpWaiters. It must not be changed.
type Report struct {
	// Limit and Used are the size and what is taken of it; of a limiter they are 0 in a list of waiters.
	Limit, Used int64
	// Closed says that nothing is granted under the name; nil when it is open.
	Closed *Closing
	// Holders are a part of what is held, in the order in which it was granted.
	Holders []HolderEntry
	// Waiters are a part of the requests that wait at this server, in the order of the line.
	Waiters []WaiterEntry
	// Total is how many holders, or waiters at this server, there are in all.
	Total int
	// Others are the lines of other servers, as far as the store tells.
	Others []OtherLine
	// Next is the id to list the next part behind; empty when there is none.
	Next string
}

// A HolderEntry is one hold in a list.
type HolderEntry struct {
	Fence uint64
	Owner Owner
	// Grant is the id of the grant that holds, empty when none does.
	Grant string
	// Since is when it was acquired; the zero time when an earlier version stored the hold and did not say.
	Since time.Time
	// HeldFor is how long ago that was.
	HeldFor time.Duration
	// ExpiresAfter is how long it lasts if it is not renewed; Forever when it does not end by itself.
	ExpiresAfter time.Duration
	// Renewals is how often it was renewed.
	Renewals int64
	// Slots is how many it takes.
	Slots int64
	// Evicted says who evicted it and why, while its term lasts; nil when it was not.
	Evicted *Closing
}

// A WaiterEntry is one command that waits, in a list.
type WaiterEntry struct {
	ID    string
	Owner Owner
	// Grant is the id of the grant that waits here, empty for any other command.
	Grant    string
	Position int // from 1
	Cost     int64
	// WaitingFor is how long it has waited.
	WaitingFor time.Duration
	// Expected is about how long it will wait from now on, and Expected90 how long nine in ten times at most;
	// Forever when nothing is known.
	Expected, Expected90 time.Duration
}

// An OtherLine is the line of another server.
type OtherLine struct {
	Server uint32
	// Waiting is how many wait there; 0 when it is a server of an earlier version, which does not say.
	Waiting int
	// WaitingFor is how long its first waits.
	WaitingFor time.Duration
	// Seen is how long ago that server said so, at most.
	Seen time.Duration
}

// A Closing says who closed a name, or evicted a hold, when and why.
type Closing struct {
	By, Reason string // may be empty
	At         time.Time
}

// String is "by ops: maintenance", as sentences have it, empty if nothing is known.
func (c *Closing) String() string {
	text := ""
	if c.By != "" {
		text = " by " + c.By
	}
	if c.Reason != "" {
		text += ": " + c.Reason
	}
	return text
}

// A NameDetails is what a list tells of a name.
type NameDetails struct {
	Name string
	// Limit and Used are how many slots or tokens there are, and are taken: of several limits, of the one
	// that has the least left. Both are 0 for kinds without a size.
	Limit, Used int64
	// Limits are the limits in force of a limiter, such as 2/1m,10/1h; empty for other kinds.
	Limits string
	// Holders and Waiting are how many hold, and how many wait at this server.
	Holders, Waiting int
	// Granted and Refused are how many commands were let through, and gave up, since Since.
	Granted, Refused int64
	// Since is when the name began; the zero time for a counter that is not known.
	Since time.Time
	// Closed says that the name is closed.
	Closed *Closing
}
