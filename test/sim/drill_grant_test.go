package sim_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/store/cas/castest"
)

// part is a name of a drill that a grant wants one of.
func (d *drilled) part(kind gatehouse.Kind, name string) gatehouse.Member {
	m := gatehouse.Member{Key: named(kind, "drill %s %s", d.name, name), Cost: 1}
	if kind == gatehouse.Semaphore {
		m.Size = 1
	}
	return m
}

// wants is an acquire of a grant that lasts.
func (d *drilled) wants(id string, wait time.Duration, want ...gatehouse.Member) gatehouse.GrantCommand {
	return gatehouse.GrantCommand{
		Op: gatehouse.OpAcquire, ID: d.id(id), Expires: lasting, MaxWait: wait, Want: want,
	}
}

// id is an id of the drill's.
func (d *drilled) id(of string) string { return strings.ReplaceAll(d.name, " ", "-") + "." + of }

func (d *drilled) giveUp(id string) gatehouse.GrantCommand {
	return gatehouse.GrantCommand{Op: gatehouse.OpRelease, ID: d.id(id)}
}

// decide has a server decide about a grant, which it must.
func (d *drilled) decide(i int, cmd gatehouse.GrantCommand) *grantCall {
	one := d.askGrant(d.at(i), d.name, cmd, gatehouse.Forever)
	if one.err != nil {
		d.violated("progress", gatehouse.Key{Kind: gatehouse.Grant, Name: cmd.ID}, "%s in peace", one)
	}
	return one
}

// later is decide in a goroutine. The client leaves after so long.
func (d *drilled) later(i int, cmd gatehouse.GrantCommand, patience time.Duration) <-chan *grantCall {
	answer := make(chan *grantCall, 1)
	s := d.at(i)
	go func() { answer <- d.askGrant(s, d.name, cmd, patience) }()
	return answer
}

func (d *drilled) wrong(of *grantCall, format string, args ...any) {
	d.violated("drill: "+d.name, of.cmd.Want[0].Key, "%s: %s", of, fmt.Sprintf(format, args...))
}

// grants: whatever names grants and single commands want, in whatever order they name them, all are granted
// in the end: none waits for another that waits.
func (d *drilled) grants() {
	const each, most = 6, 20 * time.Millisecond
	var all []gatehouse.Member
	for i := range gatehouse.MaxMembers {
		kind := []gatehouse.Kind{gatehouse.Lock, gatehouse.Semaphore}[i%2]
		all = append(all, d.part(kind, fmt.Sprint(i)))
	}
	var work sync.WaitGroup
	for n := range 8 {
		rng := source(d.seed, uint64(1000+n))
		work.Go(func() {
			for i := range each {
				d.takeTurn(rng, fmt.Sprint(n, "-", i), all, most)
			}
		})
	}
	done := make(chan struct{})
	go func() { work.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(lasting):
		d.complain(gatehouse.Lock, "after %s some wait although nobody holds anything for more than %s",
			lasting, most)
		<-done
	}
}

// takeTurn takes 1 to 16 names, keeps them for a moment and gives them back.
func (d *drilled) takeTurn(rng *rand.Rand, id string, all []gatehouse.Member, most time.Duration) {
	n := 1 + rng.IntN(4)
	if rng.IntN(4) == 0 {
		n = 1 + rng.IntN(len(all))
	}
	var want []gatehouse.Member
	for _, i := range rng.Perm(len(all))[:n] {
		want = append(want, all[i])
	}
	at := rng.IntN(len(d.servers))
	if n == 1 {
		key := want[0].Key
		one := d.cluster.ask(d.at(at), d.request(key, acquire(id, 2*lasting)))
		pause(time.Duration(rng.Int64N(int64(most))))
		if !one.granted() {
			d.complain(key.Kind, "%s, want it granted in the end", one)
		}
		d.cluster.ask(d.at(at), d.request(key, release(id)))
		return
	}
	if one := d.decide(at, d.wants(id, 2*lasting, want...)); !one.granted() {
		d.wrong(one, "want it granted in the end")
	}
	pause(time.Duration(rng.Int64N(int64(most))))
	d.decide(at+1, d.giveUp(id))
}

// grantsInOrder: requests for the same names at one server are granted in the order of their arrival.
func (d *drilled) grantsInOrder() {
	a, b := d.part(gatehouse.Lock, "a"), d.part(gatehouse.Semaphore, "b")
	d.decide(0, d.wants("first", 0, a, b))
	var waiting []<-chan *grantCall
	for i := range 6 {
		want := []gatehouse.Member{a, b}
		if i%2 == 1 {
			slices.Reverse(want)
		}
		cmd := d.wants(fmt.Sprint("w", i), lasting, want...)
		waiting = append(waiting, d.later(0, cmd, gatehouse.Forever))
		pause(5 * time.Millisecond)
	}
	d.inTurn("first", waiting)
}

// inTurn sees that those who wait are granted one after the other, each when the one before gives back.
func (d *drilled) inTurn(last string, waiting []<-chan *grantCall) {
	fence := uint64(0)
	for i, answer := range waiting {
		d.decide(i, d.giveUp(last))
		begin := d.now()
		one := <-answer
		if !one.granted() || one.d.Fence <= fence || one.end-begin > time.Second+prompt {
			d.wrong(one, "want it granted as number %d, above %d, by %s", i, fence, begin+time.Second+prompt)
		}
		last, fence = strings.TrimPrefix(one.cmd.ID, d.id("")), one.d.Fence
	}
	d.decide(0, d.giveUp(last))
}

// grantsBetween: who wants the same names at several servers is woken when they come free, until all have had
// them. Those that lack several names have no order between servers.
func (d *drilled) grantsBetween() {
	a, b := d.part(gatehouse.Lock, "a"), d.part(gatehouse.Semaphore, "b")
	d.decide(0, d.wants("first", 0, a, b, d.tokens(60)))
	var work sync.WaitGroup
	for i := range 6 {
		want := []gatehouse.Member{a, b}
		if i%2 == 0 {
			want = append(want, d.tokens(90))
		}
		waiting := d.later(i, d.wants(fmt.Sprint("w", i), lasting, want...), gatehouse.Forever)
		work.Go(func() { d.passOn(i, <-waiting) })
		pause(prompt)
	}
	begin := d.now()
	d.passOn(0, &grantCall{cmd: d.wants("first", 0, a, b, d.tokens(60)), d: gatehouse.GrantDecision{
		Outcome: gatehouse.Granted,
	}})
	work.Wait()
	if took := d.now() - begin; took > 6*prompt {
		d.complain(gatehouse.Lock, "six took %s, want them woken within %s each", took, prompt)
	}
}

// passOn gives back what one was granted, with all of its tokens.
func (d *drilled) passOn(i int, one *grantCall) {
	if !one.granted() {
		d.wrong(one, "want it granted")
		return
	}
	end := gatehouse.GrantCommand{Op: gatehouse.OpRelease, ID: one.cmd.ID}
	if len(one.cmd.Want) > 2 {
		end.Costs = []gatehouse.MemberCost{{Key: d.tokens(0).Key, Cost: 1}}
	}
	d.decide(i+1, end)
}

// blockedGrant: one that waits for something without a known end keeps nothing else from anybody, and is
// granted at once when that comes free.
func (d *drilled) blockedGrant() {
	free, held := d.part(gatehouse.Semaphore, "free"), d.part(gatehouse.Lock, "held")
	d.cluster.ask(d.at(0), d.request(held.Key, acquire("h", 0)))
	waiting := d.later(0, d.wants("w", lasting, free, held), gatehouse.Forever)
	pause(prompt)
	for i := range 2 * len(d.servers) {
		passer := fmt.Sprint("p", i)
		one := d.cluster.ask(d.at(i), d.request(free.Key, acquire(passer, 0)))
		if !one.granted() {
			d.violated("drill: "+d.name, free.Key, "%s, want it granted: who waits lacks another name", one)
		}
		d.cluster.ask(d.at(i), d.request(free.Key, release(passer)))
		if one := d.decide(i, d.wants(passer, 0, free, d.part(gatehouse.Lock, "other"))); !one.granted() {
			d.wrong(one, "want it granted: who waits here lacks another name")
		}
		d.decide(i, d.giveUp(passer))
	}
	begin := d.now()
	d.cluster.ask(d.at(1), d.request(held.Key, release("h")))
	if one := <-waiting; !one.granted() || one.end-begin > prompt {
		d.wrong(one, "want it granted within %s after %s", prompt, begin)
	}
	d.decide(0, d.giveUp("w"))
}

// grantHangUp: what is granted to one who leaves at whatever moment, or waits then, is free of it.
func (d *drilled) grantHangUp() {
	want := []gatehouse.Member{d.part(gatehouse.Lock, "a"), d.part(gatehouse.Semaphore, "b"), d.tokens(1)}
	for i := range 10 {
		patience := time.Duration(i)*300*time.Microsecond + 1
		early := fmt.Sprint("early", i)
		if one := <-d.later(i, d.wants(early, lasting, want...), patience); one.granted() {
			d.decide(0, d.giveUp(early))
		}
		id := fmt.Sprint("next", i)
		one := d.decide(0, d.wants(id, prompt, want[:2]...))
		if !one.granted() {
			d.wrong(one, "want it free of one who left after %s", patience)
			return
		}
		gone := d.later(1, d.wants("gone"+id, lasting, want...), prompt+patience)
		pause(prompt)
		d.decide(0, d.giveUp(id))
		if one := <-gone; one.granted() {
			d.decide(0, d.giveUp("gone"+id))
		}
		pause(prompt)
	}
	one := d.decide(0, d.wants("last", prompt, want[0], want[1]))
	if !one.granted() {
		d.wrong(one, "want it free of all who left")
	}
	d.decide(0, d.giveUp("last"))
}

// tokens is some tokens of a limiter of 100 a day.
func (d *drilled) tokens(n int64) gatehouse.Member {
	m := d.part(gatehouse.SlidingLog, "tokens")
	m.Rule, m.Cost = gatehouse.Rule{Size: 100, Interval: 24 * time.Hour}, n
	return m
}

// lostWholeGrant: what a grant of unknown outcome has taken comes free under all of its names.
func (d *drilled) lostWholeGrant() {
	want := []gatehouse.Member{d.part(gatehouse.Lock, "a"), d.part(gatehouse.Semaphore, "b"), d.tokens(100)}
	d.decide(0, d.wants("known", 0, want...)) // so that it need not be read first
	end := d.giveUp("known")
	end.Costs = []gatehouse.MemberCost{{Key: want[2].Key, Cost: 0}}
	d.decide(0, end)
	d.store.Set(castest.Faults{Latency: time.Millisecond, LostAnswer: 1})
	if one := d.askGrant(d.at(0), d.name, d.wants("lost", 0, want...), gatehouse.Forever); one.err == nil {
		d.wrong(one, "want an error, as nothing can be known")
	}
	d.mend()
	if one := d.decide(1, d.wants("next", 3*time.Second, want...)); !one.granted() {
		d.wrong(one, "want it granted, as the first does not know of its grant")
	}
	end.ID = d.id("next")
	d.decide(1, end)
}

// deadGrant: a server that dies while a grant stands in its lines keeps nobody waiting for long.
func (d *drilled) deadGrant() {
	a, b := d.part(gatehouse.Lock, "a"), d.part(gatehouse.Semaphore, "b")
	d.decide(0, d.wants("first", 0, a, b))
	dies := len(d.servers) - 1
	lost := d.later(dies, d.wants("lost", lasting, a, b), gatehouse.Forever)
	pause(prompt)
	d.stop(dies, true)
	d.boot(dies)
	<-lost
	waiting := d.later(0, d.wants("next", lasting, a, b), gatehouse.Forever)
	pause(prompt)
	begin := d.now()
	d.decide(0, d.giveUp("first"))
	if one := <-waiting; !one.granted() || one.end-begin > 4*time.Second+prompt {
		d.wrong(one, "want it granted soon after %s", begin)
	}
	d.decide(0, d.giveUp("next"))
}

// grantOfTokens: what is settled, in whatever way, counts once; what is refused takes nothing; what ends by
// itself gives back what it says, at its end.
func (d *drilled) grantOfTokens() {
	lock := d.part(gatehouse.Lock, "a")
	cost := func(n int64) []gatehouse.MemberCost {
		return []gatehouse.MemberCost{{Key: d.tokens(0).Key, Cost: n}}
	}
	settle := func(i int, op gatehouse.Op, id string, n int64) {
		d.decide(i, gatehouse.GrantCommand{Op: op, ID: d.id(id), Costs: cost(n)})
	}
	d.decide(0, d.wants("a", 0, lock, d.tokens(60)))
	d.decide(1, d.wants("refused", 0, lock, d.tokens(40))) // the lock is held
	d.left(40)
	settle(1, gatehouse.OpSettle, "a", 30)
	settle(2, gatehouse.OpSettle, "a", 30)
	d.left(70)
	settle(0, gatehouse.OpRelease, "a", 20)
	settle(1, gatehouse.OpRelease, "a", 0) // too late
	d.left(80)
	for i, expiry := range []gatehouse.OnExpiry{
		gatehouse.ExpiryEstimate, gatehouse.ExpiryZero, gatehouse.ExpiryLast,
	} {
		id := fmt.Sprint("dies", i)
		cmd := d.wants(id, 0, lock, d.tokens(20))
		cmd.Expires, cmd.OnExpiry = time.Second, expiry
		if one := d.decide(i, cmd); !one.granted() {
			d.wrong(one, "want it granted")
		}
		settle(i+1, gatehouse.OpSettle, id, 10)
		pause(time.Second + prompt)
		d.left([]int64{60, 60, 50}[i])
	}
	end := gatehouse.Command{Op: gatehouse.OpDelete}
	d.cluster.ask(d.at(0), d.request(d.tokens(0).Key, end))
}

// left sees how many tokens are left.
func (d *drilled) left(want int64) {
	m := d.tokens(1)
	one, err := d.at(0).gate.Do(context.Background(), m.Key, gatehouse.Command{
		Op: gatehouse.OpPeek, Rule: m.Rule,
	})
	if err != nil || one.Remaining != want {
		d.violated("drill: "+d.name, m.Key, "%d are left, want %d: %v", one.Remaining, want, err)
	}
}
