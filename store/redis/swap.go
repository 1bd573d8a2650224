package redis

import (
	"context"
	"crypto/sha1" //nolint:gosec // it is how Redis names scripts
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/store/swap"
	"github.com/redis/rueidis"
)

//go:embed swap.lua
var script string

// digest is the name of the script.
func digest() string {
	sum := sha1.Sum([]byte(script)) //nolint:gosec // it is how Redis names scripts
	return hex.EncodeToString(sum[:])
}

// nonceSize is the length of a nonce, which stands in a record at swap.NonceAt. The script says so too.
const nonceSize = 8

// reads stands in the place of the time that a record is kept for when nothing is to be changed.
const reads = "read"

// Swap implements swap.Backend.
func (b *Backend) Swap(ctx context.Context, key gatehouse.Key, change *swap.Change) (swap.Reply, error) {
	const milliseconds = 20 // digits
	names := make([]byte, 0, len(b.address.prefix)+len(key.Name)+16+nonceSize+milliseconds)
	names = b.names.append(names, key)
	ends := [3]int{len(names)}
	if change.If != 0 {
		names = binary.BigEndian.AppendUint64(names, change.If)
	}
	ends[1] = len(names)
	if change.Keep != gatehouse.Forever {
		kept := max(1, (change.Keep+time.Millisecond-1)/time.Millisecond)
		names = strconv.AppendInt(names, int64(kept), 10)
	}
	ends[2] = len(names)
	// Nobody changes these bytes any more, nor those of the record.
	text := rueidis.BinaryString(names)
	r := b.requests.Get().(*request)
	r.key = text[:ends[0]]
	nonce := text[ends[0]:ends[1]]
	if change.Read {
		r.arguments = append(r.arguments[:0], nonce, "", reads, "0")
	} else {
		record, keep := rueidis.BinaryString(change.Next), text[ends[1]:]
		r.arguments = append(r.arguments[:0], nonce, record, keep, strconv.Itoa(len(change.Wake)))
		for _, server := range change.Wake {
			r.arguments = append(r.arguments, b.names.channel(server))
		}
	}
	if err := b.ask(ctx, r); err != nil {
		return swap.Reply{}, err
	}
	reply, err := b.read(r, change)
	b.recycle(r)
	return reply, err
}

// recycle keeps a request that was answered for the next call.
func (b *Backend) recycle(r *request) {
	clear(r.arguments)
	r.answer, r.err, r.key = rueidis.RedisMessage{}, nil, ""
	b.requests.Put(r)
}

// ask has the script run. A request that failed is not used again.
func (b *Backend) ask(ctx context.Context, r *request) error {
	l, err := b.connect(ctx)
	if err != nil {
		return err
	}
	if err := l.do(ctx, r); err != nil {
		return err
	}
	if r.err == nil {
		r.err = r.answer.Error()
	}
	switch {
	case r.err == nil || rueidis.IsRedisNil(r.err):
		return nil
	case word(r.err.Error()) == "READONLY":
		b.drop(l)
	}
	return b.address.fault(r.err)
}

// read understands an answer of the script.
func (b *Backend) read(r *request, change *swap.Change) (reply swap.Reply, err error) {
	reply.Now = time.UnixMicro(r.now)
	switch {
	case r.answer.IsInt64():
		reply.Swapped, reply.Version = true, change.Nonce
		if change.Read {
			reply.Version = change.If
		} else if change.Next == nil {
			reply.Version = 0
		}
		return reply, nil
	case r.answer.IsNil():
		return reply, nil
	}
	if reply.Record, err = r.answer.AsBytes(); err != nil {
		return reply, errAnswer
	}
	if len(reply.Record) >= swap.NonceAt+nonceSize {
		reply.Version = binary.BigEndian.Uint64(reply.Record[swap.NonceAt:])
	}
	return reply, nil
}
