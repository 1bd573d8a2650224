// Package redisstore keeps the counts of sliding windows in Redis, for limiters in many processes.
//
// A count is the string KEY@START, where START is the beginning of the window in Unix nanoseconds. That
// is how the example of github.com/RussellLuo/slidingwindow names it, so that processes with that and
// with this store can share their counts.
package redisstore

import (
	"context"
	"crypto/sha1" //nolint:gosec // it is how Redis names scripts
	_ "embed"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse/slidingwindow"
	"github.com/redis/rueidis"
)

// A Store is a slidingwindow.Exchanger. It is safe for use by many goroutines.
type Store struct {
	client    rueidis.Client
	expires   time.Duration
	add, push script
}

var _ slidingwindow.Exchanger = (*Store)(nil)

// callTimeout is how long Add and Get wait for Redis. It is less than limiters give a store.
const callTimeout = 500 * time.Millisecond

// New returns a store that uses client, which the caller has to close. A count is forgotten after expires,
// which should be twice the size of the largest window, if its window does not say when. New panics for
// an expires below a millisecond.
func New(client rueidis.Client, expires time.Duration) *Store {
	if expires < time.Millisecond {
		panic(fmt.Sprintf("redisstore: expires is %v, want at least 1ms", expires))
	}
	return &Store{client, expires, newScript(addText), newScript(pushText)}
}

// Add adds delta to a count and sets when it expires, as one atomic change, and returns the new count.
func (s *Store) Add(key string, start, delta int64) (int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	return s.exchangeOne(ctx, slidingwindow.Push{Key: key, Start: start, Delta: delta})
}

// Get returns a count.
func (s *Store) Get(key string, start int64) (int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	return s.exchangeOne(ctx, slidingwindow.Push{Key: key, Start: start})
}

func (s *Store) exchangeOne(ctx context.Context, p slidingwindow.Push) (int64, error) {
	pushes := []slidingwindow.Push{p}
	s.Exchange(ctx, pushes)
	return pushes[0].Total, pushes[0].Err
}

// Exchange carries out all pushes in one round trip, each as one atomic change. One that is sent again
// because its answer was lost counts once.
func (s *Store) Exchange(ctx context.Context, pushes []slidingwindow.Push) {
	commands := make(rueidis.Commands, len(pushes))
	for i := range pushes {
		commands[i] = s.buildCommand(&pushes[i], false)
	}
	// Redis keeps scripts in memory only, so after its restart it does not know them by their hash. Those
	// commands had no effect and are sent again with the text, which also makes Redis remember it.
	var unknown []int
	for i, answer := range s.client.DoMulti(ctx, commands...) {
		if failure, ok := rueidis.IsRedisErr(answer.Error()); ok && failure.IsNoScript() {
			unknown = append(unknown, i)
			continue
		}
		readReply(&pushes[i], answer)
	}
	if len(unknown) == 0 {
		return
	}
	again := make(rueidis.Commands, len(unknown))
	for j, i := range unknown {
		again[j] = s.buildCommand(&pushes[i], true)
	}
	// Without a second check for unknown scripts: EVAL carries the text.
	for j, answer := range s.client.DoMulti(ctx, again...) {
		readReply(&pushes[unknown[j]], answer)
	}
}

// readReply sets the result of a push from the reply of Redis.
func readReply(p *slidingwindow.Push, answer rueidis.RedisResult) {
	text, err := answer.ToString()
	switch {
	case rueidis.IsRedisNil(err):
		p.Total, p.Err = 0, nil
		return
	case err == nil:
		p.Total, err = strconv.ParseInt(text, 10, 64)
	}
	p.Err = err
	if err != nil {
		p.Err = fmt.Errorf("redisstore: %s: %w", countKey(p), err)
	}
}

// buildCommand makes the command for a push. A script is named by its hash, or sent as text.
func (s *Store) buildCommand(p *slidingwindow.Push, asText bool) rueidis.Completed {
	call := func(run *script, keys, arguments []string) rueidis.Completed {
		many, build := int64(len(keys)), s.client.B()
		if asText {
			return build.Eval().Script(run.text).Numkeys(many).Key(keys...).Arg(arguments...).Build()
		}
		return build.Evalsha().Sha1(run.hash).Numkeys(many).Key(keys...).Arg(arguments...).Build()
	}
	count := countKey(p)
	if p.Delta == 0 {
		return s.client.B().Get().Key(count).Build()
	}
	expires := p.Keep
	if expires <= 0 {
		expires = s.expires
	}
	// Redis refuses an expiry of 0.
	milliseconds := strconv.FormatInt(max(expires.Milliseconds(), 1), 10)
	// Without a sum, or a key for it, the delta is added as it is: a push that is repeated counts twice then.
	sums, ok := sumsKey(count)
	if p.Sum == 0 || !ok {
		delta := strconv.FormatInt(p.Delta, 10)
		return call(&s.add, []string{count}, []string{delta, milliseconds})
	}
	// Base 36 keeps the field names of the sums short, which Redis stores for each source.
	source, sum := strconv.FormatUint(p.Source, 36), strconv.FormatInt(p.Sum, 10)
	return call(&s.push, []string{count, sums}, []string{source, sum, milliseconds})
}

// countKey returns the key of a window's count.
func countKey(p *slidingwindow.Push) string { return p.Key + "@" + strconv.FormatInt(p.Start, 10) }

// sumsKey returns the key of the sums of a count's sources. In a Redis cluster both must be in the same slot,
// which is chosen by what is between the first { and the next }, or by the whole name if there is nothing. ok
// is false for the few names for which none in the same slot can be found.
func sumsKey(count string) (sums string, ok bool) {
	const suffix = "/sums"
	// The key has a hash tag of its own, which the suffix does not change.
	if _, after, found := strings.Cut(count, "{"); found {
		if tag, _, closed := strings.Cut(after, "}"); closed && tag != "" {
			return count + suffix, true
		}
	}
	// The tag would end at the first brace inside the name, so the two keys would differ in it.
	if strings.Contains(count, "}") {
		return "", false
	}
	return "{" + count + "}" + suffix, true
}

// addText adds to a count.
//
//go:embed add.lua
var addText string

// pushText adds to a count what is new in the sum of one source.
//
//go:embed push.lua
var pushText string

// A script is a change that Redis makes atomically. Redis knows it by its hash once it was sent the text.
type script struct{ text, hash string }

func newScript(text string) script {
	hash := sha1.Sum([]byte(text)) //nolint:gosec // it is how Redis names scripts
	return script{text, hex.EncodeToString(hash[:])}
}
