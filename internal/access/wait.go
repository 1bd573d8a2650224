package access

import (
	"math"

	"github.com/gatehousehq/gatehouse"
)

// A Wait is a request of a user that waits in line. It counts against the user's quota, and is refused when a
// new policy does not allow it any more.
type Wait struct {
	users  *Users
	user   *User
	login  *Login
	key    gatehouse.Key   // as the user calls it
	more   []gatehouse.Key // the other names, of a request that wants several
	level  gatehouse.Level
	refuse func(error)
}

// BeginWait notes that a request waits in line. refuse is called once, on another goroutine, if the user may
// not wait any more; the caller cancels the request then. The wait ends with End.
func (u *Users) BeginWait(w Wait, refuse func(error)) (*Wait, error) {
	most := w.user.most.Waiters
	// It is counted before it is compared, so that two at the same time are not both let in as the last.
	if n := w.user.usage.waiters.Add(1); most > 0 && n > most {
		w.user.usage.waiters.Add(-1)
		return nil, w.user.CountRefused(w.key, w.user.overQuota("waiting requests", most))
	}
	w.users, w.refuse = u, refuse
	u.mu.Lock()
	defer u.mu.Unlock()
	// A policy that came after the request was judged has not seen it.
	if p := u.policy.Load(); w.user.policy != p {
		if err := w.judge(u.lookUp(w.login)); err != nil {
			w.user.usage.waiters.Add(-1)
			return nil, err
		}
	}
	u.waits[&w] = struct{}{}
	// A store keeps a name as long as a request waits for it.
	w.eachName(func(t *begunSet[gatehouse.Key], key gatehouse.Key) { t.ask(key, math.MaxInt64, u.elapsed()) })
	return &w, nil
}

// eachName calls do for each name that it waits for, as the gate knows it, with those that count for the
// user; for none if names have no quota.
func (w *Wait) eachName(do func(t *begunSet[gatehouse.Key], key gatehouse.Key)) {
	if w.user.most.Names == 0 || w.key.Kind == 0 {
		return
	}
	v := w.user.usage
	v.mu.Lock()
	defer v.mu.Unlock()
	// A Wait has names as the user calls them, for judge; quotas count those of the gate.
	inside := func(key gatehouse.Key) gatehouse.Key {
		key.Name = w.user.Inside(key.Name)
		return key
	}
	do(&v.names, inside(w.key))
	for _, key := range w.more {
		do(&v.names, inside(key))
	}
}

// NewWait describes a request for one name that is to wait.
func (u *User) NewWait(login *Login, key gatehouse.Key, op gatehouse.Op) Wait {
	return Wait{user: u, login: login, key: key, level: key.Kind.Level(op)}
}

// NewGrantWait describes a request over several names that is to wait, as [User.EnterGrant] has left it.
func (u *User) NewGrantWait(login *Login, cmd *gatehouse.GrantCommand) Wait {
	// What takes from names uses them, whatever their kinds are.
	w := Wait{user: u, login: login, level: gatehouse.LevelUse}
	for i := range cmd.Want {
		w.addKey(cmd.Want[i].Key)
	}
	for i := range cmd.Costs {
		w.addKey(cmd.Costs[i].Key)
	}
	return w
}

// addKey adds a name, as the gate knows it.
func (w *Wait) addKey(key gatehouse.Key) {
	key.Name, _ = w.user.Outside(key.Name)
	if w.key.Kind == 0 {
		w.key = key
		return
	}
	w.more = append(w.more, key)
}

// judge returns an error unless the request may wait on, now that its login stands for this user; nil if for
// none. The limits that it states were judged when it came; they are in force by now.
func (w *Wait) judge(now *User) error {
	// Another user, and one whose names lie elsewhere, has not asked for this.
	same := now != nil && now.Name == w.user.Name && now.prefix == w.user.prefix
	if !same || !now.May(w.key.Kind, w.key.Name, w.level) {
		return w.user.CountRefused(w.key, w.user.refusal("waiting for "+w.key.String(), w.level))
	}
	for _, key := range w.more {
		if !now.May(key.Kind, key.Name, w.level) {
			return w.user.CountRefused(key, w.user.refusal("waiting for "+key.String(), w.level))
		}
	}
	return nil
}

// End ends the wait. w may be nil.
func (w *Wait) End() {
	if w == nil {
		return
	}
	w.user.usage.waiters.Add(-1)
	// The quotas are those of the user that the wait began with, so that what was asked for ends.
	w.eachName((*begunSet[gatehouse.Key]).endAsking)
	w.users.mu.Lock()
	delete(w.users.waits, w)
	w.users.mu.Unlock()
}
