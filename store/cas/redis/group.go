package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/redis/rueidis"
)

const (
	// maxGroup is the most requests that one run of the script serves. Redis serves no other client
	// meanwhile.
	maxGroup = 32
	// maxGroupSize is how many bytes of records are enough for one.
	maxGroupSize = 256 << 10
	// defaultBatchTime is how long a batch of requests without deadlines may take.
	defaultBatchTime = 5 * time.Second
)

// A scriptGroup is those requests that one run of the script serves. That costs Redis less than half of
// what it costs to run it for each.
type scriptGroup struct {
	calls    []*scriptCall
	sendText bool // Redis is to be told the text of the script
}

// splitBatch divides a batch into what is served together, one by one where keys are on different servers.
func (l *lane) splitBatch(batch []*scriptCall) (all []scriptGroup) {
	for len(batch) > 0 {
		n, size, keys, most := 0, 0, 0, maxGroup
		if b := l.link.backend; l.link.single.Load() || batch[0].script == b.spread {
			most = 1
		}
		// The first call goes in whatever its size, so a large record does not stop the loop.
		for ; n < len(batch) && batch[n].script == batch[0].script && size < maxGroupSize; n++ {
			keys += batch[n].countKeys()
			if n > 0 && keys > most {
				break
			}
			size += batch[n].size
		}
		all = append(all, scriptGroup{calls: batch[:n]})
		batch = batch[n:]
	}
	return all
}

// sendBatch has a batch carried out, and tells its callers. It reports whether all was answered.
func (l *lane) sendBatch(batch []*scriptCall) (answered bool) {
	// The batch may take as long as its most patient call; each of the others ends at its own deadline.
	latest := batch[0].deadline
	for _, r := range batch {
		if r.deadline.IsZero() || r.deadline.After(latest) && !latest.IsZero() {
			latest = r.deadline
		}
	}
	if latest.IsZero() {
		latest = time.Now().Add(defaultBatchTime)
	}
	ctx, cancel := context.WithDeadline(context.Background(), latest)
	defer cancel()
	answered = true
	// Groups that Redis refused as a whole come back in another form, until there are none.
	for groups := l.splitBatch(batch); len(groups) > 0; {
		var again []scriptGroup
		for i, result := range l.runScript(ctx, groups) {
			answered = answered && result.NonRedisError() == nil
			again = append(again, l.readResult(&groups[i], result)...)
		}
		groups = again
	}
	return answered
}

// runScript runs the script for each group.
func (l *lane) runScript(ctx context.Context, groups []scriptGroup) []rueidis.RedisResult {
	commands := make(rueidis.Commands, len(groups))
	for i := range groups {
		commands[i] = l.scriptCommand(&groups[i])
	}
	// A single command avoids the cost of a pipeline.
	if len(commands) == 1 {
		return []rueidis.RedisResult{l.link.client.Do(ctx, commands[0])}
	}
	return l.link.client.DoMulti(ctx, commands...)
}

// scriptCommand is the one that runs the script for a group.
func (l *lane) scriptCommand(g *scriptGroup) rueidis.Completed {
	keys, all := make([]string, 0, maxGroup), make([]string, 0, (1+recordArguments)*maxGroup)
	for _, r := range g.calls {
		keys, all = append(append(keys, r.key), r.more...), append(all, r.arguments...)
	}
	run := g.calls[0].script
	many, build := int64(len(keys)), l.link.client.B()
	// The text goes only after NOSCRIPT: its digest is much shorter.
	if g.sendText {
		return build.Eval().Script(run.text).Numkeys(many).Key(keys...).Arg(all...).Build()
	}
	return build.Evalsha().Sha1(run.digest).Numkeys(many).Key(keys...).Arg(all...).Build()
}

var errAnswer = errors.New("redis: the script answered something else than the time and the records")

// readResult tells the callers of a group what came of it. A group that Redis has refused as a whole, and
// so has done nothing of, is to be run again in another way, if there is one.
func (l *lane) readResult(g *scriptGroup, result rueidis.RedisResult) (again []scriptGroup) {
	answers, err := result.ToArray()
	var now int64
	made := len(answers) == 1 // the time alone says so of all
	if err == nil && (made || len(answers) == 1+len(g.calls)) {
		now, err = answers[0].ToInt64()
	} else if err == nil {
		err = errAnswer
	}
	if err == nil {
		for i, r := range g.calls {
			r.now, r.made, r.err = now, made, nil
			if !made {
				r.answer = answers[1+i]
			}
		}
		l.finishCalls(g.calls)
		return nil
	}
	refusal := firstWord(err.Error())
	switch {
	// Redis was restarted, or has never seen the script; its text brings it there again.
	case refusal == "NOSCRIPT" && !g.sendText:
		return []scriptGroup{{g.calls, true}}
	case refusal == "CROSSSLOT" && len(g.calls) == 1 && g.calls[0].countKeys() > 1:
		l.link.single.Store(true) // it is tried again, slot by slot
		err = fmt.Errorf("redis: %w: %w", cas.ErrNotSent, err)
	case (refusal == "NOPERM" || refusal == "CROSSSLOT") && len(g.calls) > 1:
		if refusal == "CROSSSLOT" {
			l.link.single.Store(true)
		}
		half := len(g.calls) / 2 // one of them may be why, or that there are several
		return []scriptGroup{{g.calls[:half], g.sendText}, {g.calls[half:], g.sendText}}
	}
	// Any other error is the answer to all calls of the group.
	l.failCalls(g.calls, err)
	return nil
}

// failCalls tells callers why there is no answer.
func (l *lane) failCalls(requests []*scriptCall, err error) {
	for _, r := range requests {
		r.err = err
	}
	for group := range slices.Chunk(requests, maxGroup) {
		l.finishCalls(group)
	}
}

// finishCalls tells the callers of a group.
func (l *lane) finishCalls(requests []*scriptCall) {
	// The calls are copied first: as soon as one is answered, its caller may use it again.
	var group [maxGroup]*scriptCall
	n := copy(group[:], requests)
	l.mu.Lock()
	clear(requests) // they may be used again at once, and are not to be found here then
	l.mu.Unlock()
	for _, r := range group[:n] {
		switch {
		case r.callback == nil:
			r.answered <- struct{}{}
		// A call whose time is up has been answered by the timer: only one of the two wins.
		case r.state.CompareAndSwap(callSent, callOver):
			if r.change == nil {
				r.callback(cas.Reply{}, nil) // which reads the answer
				continue
			}
			answered, key, change, deadline := r.callback, r.key, r.change, r.deadline
			reply, err := l.link.takeOutcome(r)
			if isUnsettled(err) {
				go l.link.backend.swapSettled(deadline, key, change, answered)
				continue
			}
			answered(reply, err)
		}
	}
}
