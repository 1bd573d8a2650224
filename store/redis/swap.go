package redis

import (
	"context"
	"crypto/sha1" //nolint:gosec // it is how Redis names scripts
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
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
	r.arguments = append(r.arguments[:0], text[ends[0]:ends[1]])
	if !change.Read {
		r.arguments = append(r.arguments, rueidis.BinaryString(change.Next), text[ends[1]:])
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
	r.command, r.answer, r.key = rueidis.Completed{}, rueidis.RedisResult{}, ""
	b.requests.Put(r)
}

// ask has the script run. A request that failed is not used again.
func (b *Backend) ask(ctx context.Context, r *request) error {
	l, err := b.connect(ctx)
	if err != nil {
		return err
	}
	build := l.client.B()
	r.command = build.Evalsha().Sha1(b.digest).Numkeys(1).Key(r.key).Arg(r.arguments...).Build()
	if err := l.do(ctx, r); err != nil {
		return err
	}
	err = r.answer.Error()
	if answer, ok := rueidis.IsRedisErr(err); ok && answer.IsNoScript() {
		r.command = build.Eval().Script(script).Numkeys(1).Key(r.key).Arg(r.arguments...).Build()
		if err := l.do(ctx, r); err != nil {
			return err
		}
		err = r.answer.Error()
	}
	if err == nil {
		return nil
	}
	if strings.HasPrefix(err.Error(), "READONLY") {
		b.drop(l)
	}
	return b.address.fault(err)
}

var errAnswer = errors.New("redis: the script answered something else than a record and the time")

// read understands an answer of the script.
func (b *Backend) read(r *request, change *swap.Change) (reply swap.Reply, err error) {
	message, err := r.answer.ToMessage()
	if err != nil {
		return reply, b.address.fault(err)
	}
	if message.IsInt64() {
		now, err := message.ToInt64()
		if err != nil {
			return reply, errAnswer
		}
		reply.Swapped, reply.Now, reply.Version = true, time.UnixMicro(now), change.Nonce
		if change.Read {
			reply.Version = change.If
		} else if change.Next == nil {
			reply.Version = 0
		}
		return reply, nil
	}
	parts, err := message.ToArray()
	if err != nil || len(parts) != 2 {
		return reply, errAnswer
	}
	now, err := parts[1].ToInt64()
	if err != nil {
		return reply, errAnswer
	}
	reply.Now = time.UnixMicro(now)
	if parts[0].IsNil() {
		return reply, nil
	}
	record, err := parts[0].AsBytes()
	if err != nil {
		return reply, errAnswer
	}
	reply.Record = record
	if len(record) >= swap.NonceAt+nonceSize {
		reply.Version = binary.BigEndian.Uint64(record[swap.NonceAt:])
	}
	return reply, nil
}
