package redis

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/rueidis"
)

const (
	// maxGroup is the most requests that one run of the script serves. Redis serves nobody else meanwhile.
	maxGroup = 32
	// maxGroupSize is how many bytes of records are enough for one.
	maxGroupSize = 256 << 10
	// patience is how long a batch of requests without deadlines may take.
	patience = 5 * time.Second
)

// A group is those requests that one run of the script serves. That costs Redis less than half of what it
// costs to run it for each.
type group struct {
	requests []*request
	text     bool // Redis is to be told the text of the script
}

// groups divides a batch into what is served together, one by one where keys are on different servers.
func (l *lane) groups(batch []*request) (all []group) {
	for len(batch) > 0 {
		n, size, most := 0, 0, maxGroup
		if l.link.single.Load() {
			most = 1
		}
		for ; n < min(most, len(batch)) && size < maxGroupSize; n++ {
			size += batch[n].size
		}
		all = append(all, group{requests: batch[:n]})
		batch = batch[n:]
	}
	return all
}

// send has a batch carried out, and tells its callers. It reports whether all was answered.
func (l *lane) send(batch []*request) (answered bool) {
	latest := batch[0].deadline
	for _, r := range batch {
		if r.deadline.IsZero() || r.deadline.After(latest) && !latest.IsZero() {
			latest = r.deadline
		}
	}
	if latest.IsZero() {
		latest = time.Now().Add(patience)
	}
	ctx, cancel := context.WithDeadline(context.Background(), latest)
	defer cancel()
	answered = true
	for groups := l.groups(batch); len(groups) > 0; {
		var again []group
		for i, result := range l.run(ctx, groups) {
			answered = answered && result.NonRedisError() == nil
			again = append(again, l.settle(&groups[i], result)...)
		}
		groups = again
	}
	return answered
}

// run runs the script for each group.
func (l *lane) run(ctx context.Context, groups []group) []rueidis.RedisResult {
	commands := make(rueidis.Commands, len(groups))
	for i := range groups {
		commands[i] = l.command(&groups[i])
	}
	if len(commands) == 1 {
		return []rueidis.RedisResult{l.link.client.Do(ctx, commands[0])}
	}
	return l.link.client.DoMulti(ctx, commands...)
}

// command is the one that runs the script for a group.
func (l *lane) command(g *group) rueidis.Completed {
	const arguments = 5 // of a key, when nobody is to be told
	keys, all := make([]string, 0, maxGroup), make([]string, 0, arguments*maxGroup)
	for _, r := range g.requests {
		keys, all = append(keys, r.key), append(all, r.arguments...)
	}
	many, build := int64(len(keys)), l.link.client.B()
	if g.text {
		return build.Eval().Script(script).Numkeys(many).Key(keys...).Arg(all...).Build()
	}
	return build.Evalsha().Sha1(l.link.backend.digest).Numkeys(many).Key(keys...).Arg(all...).Build()
}

var errAnswer = errors.New("redis: the script answered something else than the time and the records")

// settle tells the callers of a group what came of it. A group that Redis has refused as a whole, and so has
// done nothing of, is to be run again in another way, if there is one.
func (l *lane) settle(g *group, result rueidis.RedisResult) (again []group) {
	answers, err := result.ToArray()
	var now int64
	if err == nil && len(answers) == 1+len(g.requests) {
		now, err = answers[0].ToInt64()
	} else if err == nil {
		err = errAnswer
	}
	if err == nil {
		for i, r := range g.requests {
			r.now, r.answer, r.err = now, answers[1+i], nil
		}
		l.finish(g.requests)
		return nil
	}
	refusal := word(err.Error())
	switch {
	case refusal == "NOSCRIPT" && !g.text:
		return []group{{g.requests, true}}
	case (refusal == "NOPERM" || refusal == "CROSSSLOT") && len(g.requests) > 1:
		if refusal == "CROSSSLOT" {
			l.link.single.Store(true)
		}
		half := len(g.requests) / 2 // one of them may be why, or that there are several
		return []group{{g.requests[:half], g.text}, {g.requests[half:], g.text}}
	}
	l.fail(g.requests, err)
	return nil
}

// fail tells callers why there is no answer.
func (l *lane) fail(requests []*request, err error) {
	for _, r := range requests {
		r.err = err
	}
	for group := range slices.Chunk(requests, maxGroup) {
		l.finish(group)
	}
}

// finish tells the callers of a group.
func (l *lane) finish(requests []*request) {
	var group [maxGroup]*request
	n := copy(group[:], requests)
	l.mu.Lock()
	clear(requests) // they may be used again at once, and are not to be found here then
	l.mu.Unlock()
	for _, r := range group[:n] {
		switch {
		case r.answered == nil:
			r.done <- struct{}{}
		case r.state.CompareAndSwap(sent, over):
			answered := r.answered
			reply, err := l.link.outcome(r)
			answered(reply, err)
		}
	}
}
