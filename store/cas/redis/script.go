package redis

import (
	"context"
	"crypto/sha1" //nolint:gosec // it is how Redis names scripts
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/redis/rueidis"
)

var (
	//go:embed record.lua
	recordText string
	//go:embed swap.lua
	swapText string
	//go:embed together.lua
	togetherText string
	//go:embed spread.lua
	spreadText string
)

// A namedScript is a script that Redis runs.
type namedScript struct {
	text   string
	digest string // by which Redis knows it once it has seen the text
}

// newScript is the script of a text that follows what all have in common.
func newScript(text string) *namedScript {
	text = recordText + text
	sum := sha1.Sum([]byte(text)) //nolint:gosec // it is how Redis names scripts
	return &namedScript{text, hex.EncodeToString(sum[:])}
}

// nonceSize is the length of a nonce, which stands in a record at cas.NonceAt. The script says so too.
const nonceSize = 8

// What stands in the place of the time that a record is kept for when nothing is to be changed, or when the
// present one is kept for long enough; and what stands before it if there are more arguments. record.lua says
// so too.
const (
	readMark = "read"
	keptMark = "kept"
	moreMark = "+"
)

// What swap.lua finds before the nonce of a record that it is only to read, and before the expiry of one.
// noNonce is a nonce that no record has.
const (
	readOnlyMark = "r"
	expiryMark   = "e"
	noNonce      = 1<<64 - 1
)

// Swap implements cas.Backend.
func (b *Backend) Swap(ctx context.Context, key gatehouse.Key, change *cas.RecordChange) (cas.Reply, error) {
	for {
		reply, err := b.doCall(ctx, b.newCall(key, change))
		unsettled, is := err.(*unsettledError) //nolint:errorlint // it is never wrapped
		if !is {
			return reply, err
		}
		// The record is asked for again once the change that it is a part of is settled.
		l, err := b.currentLink(ctx)
		if err == nil {
			err = l.settleFor(ctx, b.names.recordKey(key), unsettled)
		}
		if err != nil {
			return cas.Reply{}, fmt.Errorf("redis: %w: %w", cas.ErrNotSent, err)
		}
	}
}

// Start is Swap without a goroutine of the caller's: answered is called once.
func (b *Backend) Start(
	ctx context.Context, key gatehouse.Key, change *cas.RecordChange, answered func(cas.Reply, error),
) {
	l := b.link.Load()
	if l == nil {
		// Without a connection the call has to wait for one, which Start must not.
		go func() { answered(b.Swap(ctx, key, change)) }()
		return
	}
	r := b.newCall(key, change)
	r.callback = answered
	if !l.laneFor(r.key).addCall(ctx, r) {
		answered(cas.Reply{}, errQueueFull)
	}
}

// newCall makes the request of a change.
func (b *Backend) newCall(key gatehouse.Key, change *cas.RecordChange) *scriptCall {
	r := b.calls.Get().(*scriptCall)
	r.key, r.script = b.names.recordKey(key), b.swap
	switch {
	case replacesPlainly(change) && change.Kept:
		r.arguments = append(r.arguments[:0], rueidis.BinaryString(change.Next))
	case replacesPlainly(change) && change.Keep != gatehouse.Forever:
		r.arguments = append(r.arguments[:0], expiryArgument(change), rueidis.BinaryString(change.Next))
	case change.Read:
		r.arguments = append(r.arguments[:0], readArgument(change))
	default:
		r.arguments = b.appendChange(append(r.arguments[:0], ""), change)
	}
	// About what crosses the network: the record in one direction, and perhaps in the other.
	r.change, r.size = change, change.Size+len(change.Next)
	return r
}

// replacesPlainly reports whether a change only replaces a record, so that the scripts need nothing but the
// new one and its expiry: it has the nonce of the old one behind its own.
func replacesPlainly(change *cas.RecordChange) bool {
	const before, plainForm = cas.NonceAt + nonceSize + 1, 1
	return change.If != 0 && !change.Read && !hasMore(change) &&
		len(change.Next) >= before+nonceSize && change.Next[0] == plainForm &&
		binary.BigEndian.Uint64(change.Next[before:]) == change.If
}

// expiryArgument is the argument of swap.lua that says for how long a record is kept.
func expiryArgument(change *cas.RecordChange) string {
	return string(strconv.AppendInt([]byte(expiryMark), keptMillis(change.Keep), 10))
}

// readArgument is the argument of swap.lua about a record that is only read.
func readArgument(change *cas.RecordChange) string {
	if change.If == 0 || change.If == noNonce {
		return readOnlyMark
	}
	return string(binary.BigEndian.AppendUint64([]byte(readOnlyMark), change.If))
}

// recordArguments is how many arguments the scripts have of a change at most, but for those that have more.
const recordArguments = 3

// hasMore reports whether the scripts have more arguments of a change.
func hasMore(change *cas.RecordChange) bool {
	return change.Claim != 0 || !change.Read && len(change.Wake) > 0
}

// appendChange appends the arguments that record.lua names about a change.
func (b *Backend) appendChange(arguments []string, change *cas.RecordChange) []string {
	nonce, record, keep, wake := "", "", "", change.Wake
	if change.If != 0 {
		nonce = string(binary.BigEndian.AppendUint64(nil, change.If))
	}
	switch {
	case change.Read:
		keep, wake = readMark, nil // nothing changes
	case change.Kept && change.If != 0:
		keep = keptMark
	case change.Keep != gatehouse.Forever:
		keep = strconv.FormatInt(keptMillis(change.Keep), 10)
	}
	if !change.Read {
		record = rueidis.BinaryString(change.Next)
	}
	if !hasMore(change) {
		return append(arguments, nonce, record, keep)
	}
	wakes := strconv.Itoa(len(wake))
	arguments = append(arguments, nonce, record, moreMark+keep, claimArgument(change), wakes)
	for _, server := range wake {
		arguments = append(arguments, b.names.wakeChannel(server))
	}
	return arguments
}

// keptMillis is for how long Redis keeps a record: rounded up, and at least 1, as it takes no expiry of 0.
func keptMillis(keep time.Duration) int64 {
	return int64(max(1, (keep+time.Millisecond-1)/time.Millisecond))
}

// doCall has a request carried out, and waits for the answer. One that failed is not used again.
func (b *Backend) doCall(ctx context.Context, r *scriptCall) (reply cas.Reply, err error) {
	l, err := b.currentLink(ctx)
	if err != nil {
		return reply, err
	}
	// A call that failed may still be under way, so it does not go back to the pool.
	if err := l.laneFor(r.key).doCall(ctx, r); err != nil {
		return reply, err
	}
	return l.takeOutcome(r)
}

// takeOutcome is what came of a request, which is kept for the next call.
func (l *link) takeOutcome(r *scriptCall) (reply cas.Reply, err error) {
	err = r.err
	if err == nil {
		err = r.answer.Error()
	}
	switch {
	case err == nil || rueidis.IsRedisNil(err):
		reply, err = r.readAnswer()
	default:
		err = l.callError(err)
	}
	l.backend.recycle(r)
	return reply, err
}

// recycle keeps a request for another call. Nothing of the caller's is kept.
func (b *Backend) recycle(r *scriptCall) {
	clear(r.arguments)
	clear(r.more)
	r.more = r.more[:0]
	r.answer, r.err, r.made = rueidis.RedisMessage{}, nil, false
	r.script, r.key, r.change, r.callback = nil, "", nil, nil
	b.calls.Put(r)
}

// readAnswer understands an answer of the script.
func (r *scriptCall) readAnswer() (reply cas.Reply, err error) {
	if r.made {
		return madeReply(r.now, r.change), nil
	}
	return readReply(&r.answer, r.now, r.change)
}

// madeReply is the reply that a record was replaced, or is the same as the one read.
func madeReply(now int64, change *cas.RecordChange) cas.Reply {
	reply := cas.Reply{Now: time.UnixMicro(now), Swapped: true, Version: change.Nonce}
	if change.Read {
		reply.Version = change.If
	} else if change.Next == nil {
		reply.Version = 0
	}
	return reply
}

// readReply understands what a script answers about one record.
func readReply(
	answer *rueidis.RedisMessage, now int64, change *cas.RecordChange,
) (reply cas.Reply, err error) {
	reply.Now = time.UnixMicro(now)
	switch {
	// The script answers 1 when it has replaced the record, or when it is the same as the one read.
	case answer.IsInt64():
		return madeReply(now, change), nil
	// There is no record: version 0.
	case answer.IsNil():
		reply.Swapped = change.Read && change.If == 0
		return reply, nil
	}
	record := *answer
	if answer.IsArray() {
		if unsettled, is := readUnsettled(answer); is {
			return reply, &unsettled
		}
		record, reply.Claimed, err = readClaimed(answer)
		if err != nil {
			return reply, err
		}
	}
	reply.Record, err = record.AsBytes()
	if err != nil {
		return reply, errAnswer
	}
	// A record that is too short is damaged, which package cas reports when it decodes it.
	if len(reply.Record) >= cas.NonceAt+nonceSize {
		reply.Version = binary.BigEndian.Uint64(reply.Record[cas.NonceAt:])
	}
	return reply, nil
}

// A record that a server has claimed has the claim before it, which the script writes and reads: 1 byte 2,
// where a record without one has its version; the server in 8 hexadecimal digits; until when the others wait,
// in 16 digits of microseconds.
const (
	claimedForm = 2
	claimSize   = 1 + 8 + 16
)

// claimArgument is the argument of the script that says who asks and what it claims, empty if it claims
// nothing.
func claimArgument(change *cas.RecordChange) string {
	if change.Claim == 0 {
		return ""
	}
	const digit9 = 1 << 32 // which leaves 8 digits behind it
	text := strconv.AppendUint(make([]byte, 0, 32), digit9|uint64(change.Server), 16)
	return string(strconv.AppendInt(text, change.Claim.Microseconds(), 10)[1:])
}

// stripClaim is a stored record without the claim on it.
func stripClaim(data []byte) []byte {
	if len(data) > claimSize && data[0] == claimedForm {
		return data[claimSize:]
	}
	return data
}

// What a change of several slots leaves before a record until it is settled, which spread.lua writes and
// reads: 1 byte 3, the old record and the new one; or 1 byte 4, when the record is to go, the keys of others,
// and the record.
const (
	preparedForm  = 3
	preparedSize  = 1 + 16 + 3*16 + 3*8 // before the first key and the old record
	committedForm = 4
	committedSize = 1 + 16 + 8 + goesSize // before the keys of others
	lengthSize    = 8
	goesSize      = 16 // when the record is to go, behind the length
)

// plainRecord is a stored record without what may stand before it; as it was before a change that is not
// settled yet. It is empty when there was none.
func plainRecord(data []byte) []byte {
	// What is no number, or points behind the end, counts as 0: the record may be anything.
	number := func(at int) int {
		n, err := strconv.Atoi(string(data[at : at+lengthSize]))
		if err != nil || n > len(data) {
			return 0
		}
		return n
	}
	switch {
	case len(data) > preparedSize && data[0] == preparedForm:
		from := min(preparedSize+number(preparedSize-3*lengthSize), len(data))
		return data[from:min(from+number(preparedSize-2*lengthSize), len(data))]
	case len(data) > committedSize && data[0] == committedForm:
		return data[min(committedSize+number(committedSize-goesSize-lengthSize), len(data)):]
	}
	return stripClaim(data)
}

// readClaimed reads the answer that the record is claimed by another server, and for how long.
func readClaimed(answer *rueidis.RedisMessage) (record rueidis.RedisMessage, rest time.Duration, err error) {
	parts, err := answer.ToArray()
	const record1, micros = 0, 1
	if err != nil || len(parts) != 2 {
		return record, 0, errAnswer
	}
	n, err := parts[micros].ToInt64()
	if err != nil {
		return record, 0, errAnswer
	}
	// At least 1, because 0 would say that no claim bars the change.
	return parts[record1], max(1, time.Duration(n)*time.Microsecond), nil
}
