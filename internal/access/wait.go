package access

import "github.com/gatehousehq/gatehouse"

// A Wait is a request of a user that waits in line. It counts against the user's quota, and is refused when a
// new policy does not allow it any more.
type Wait struct {
	users  *Users
	user   *User
	login  *Login
	key    gatehouse.Key
	level  gatehouse.Level
	refuse func(error)
}

// BeginWait notes that a request waits in line for a key, as the user calls it. refuse is called once, on
// another goroutine, if the user may not wait any more; the caller cancels the request then. The wait ends
// with End.
func (u *Users) BeginWait(w Wait, refuse func(error)) (*Wait, error) {
	most := w.user.most.Waiters
	if n := w.user.usage.waiters.Add(1); most > 0 && n > most {
		w.user.usage.waiters.Add(-1)
		return nil, w.user.overQuota("waiting requests", most)
	}
	w.users, w.refuse = u, refuse
	u.mu.Lock()
	defer u.mu.Unlock()
	// A policy that came after the request was judged has not seen it.
	if p := u.policy.Load(); w.user.policy != p {
		now := u.lookUp(w.login)
		if now == nil || !now.May(w.key.Kind, w.key.Name, w.level) {
			w.user.usage.waiters.Add(-1)
			return nil, w.user.refusal("waiting for "+w.key.String(), w.level)
		}
	}
	u.waits[&w] = struct{}{}
	return &w, nil
}

// NewWait describes a request that is to wait.
func NewWait(user *User, login *Login, key gatehouse.Key, op gatehouse.Op) Wait {
	return Wait{user: user, login: login, key: key, level: key.Kind.Level(op)}
}

// End ends the wait. w may be nil.
func (w *Wait) End() {
	if w == nil {
		return
	}
	w.user.usage.waiters.Add(-1)
	w.users.mu.Lock()
	delete(w.users.waits, w)
	w.users.mu.Unlock()
}
