package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/access"
)

// A modelUser is a user of a file: u0, u1 or u2.
type modelUser struct {
	token  byte               // one of modelTokens
	levels [2]gatehouse.Level // of all locks, and of lock/a
	prefix bool
}

// modelTokens is how many tokens there are.
const modelTokens = 4

func modelToken(i byte) string { return fmt.Sprint("token-", i) }

// A usersModel is what a file says, by the number of the user.
type usersModel map[byte]modelUser

// levelOf returns whose a token is, and what its user may do with a lock.
func (m usersModel) levelOf(token byte, name string) (user byte, level gatehouse.Level) {
	for number, u := range m {
		if u.token != token {
			continue
		}
		if level := u.levels[1]; name == "a" && level != gatehouse.NoLevel {
			return number, level
		}
		return number, u.levels[0]
	}
	return 0, gatehouse.NoLevel
}

// isFine reports whether a file that says so has no fault: no token may be that of two users.
func (m usersModel) isFine() bool {
	seen := make(map[byte]bool)
	for _, u := range m {
		seen[u.token] = true
	}
	return len(m) > 0 && len(seen) == len(m)
}

// text is the file.
func (m usersModel) text() string {
	var out strings.Builder
	out.WriteString("users:\n")
	for number := range byte(3) {
		u, ok := m[number]
		if !ok {
			continue
		}
		sum := sha256.Sum256([]byte(modelToken(u.token)))
		fmt.Fprintf(&out, "- {name: u%d, tokens: ['sha256:%s'], may: [", number, hex.EncodeToString(sum[:]))
		for i, on := range []string{"lock/*", "lock/a"} {
			if level := u.levels[i]; level != gatehouse.NoLevel {
				fmt.Fprintf(&out, "{on: %s, do: %s},", on, level)
			}
		}
		out.WriteString("]")
		if u.prefix {
			out.WriteString(", prefix: t/")
		}
		out.WriteString("}\n")
	}
	return out.String()
}

// readModel returns a file from three bytes, one for each user.
func readModel(b []byte) usersModel {
	m := make(usersModel)
	for i, bits := range b {
		if bits&0x80 != 0 {
			continue
		}
		m[byte(i)] = modelUser{
			token:  bits % modelTokens,
			levels: [2]gatehouse.Level{gatehouse.Level(bits >> 2 % 4), gatehouse.Level(bits >> 4 % 4)},
			prefix: bits&0x40 != 0,
		}
	}
	return m
}

// A modelWait is a request in line, as its user came with a token.
type modelWait struct {
	*access.Wait
	token, user byte
	prefix      bool
	name        string
	refused     bool
}

// A usersFuzz reads one file after the other, and knows what the last one without a fault says.
type usersFuzz struct {
	*testing.T
	file   string
	reload usersReload
	good   usersModel
	logins map[byte]*access.Login
	waits  []*modelWait
}

// write writes a file with a fault or without, and reads it.
func (f *usersFuzz) write(fault byte, m usersModel) {
	text, fine, mode := m.text(), m.isFine(), os.FileMode(0o600)
	// The others are no faults.
	faults := []func(){
		func() { text = text[:len(text)/2] + "\n]" },
		func() { text += "- {name: u3, may: [{on: 'lock/*', do: everything}]}\n" },
		func() { text = strings.Replace(text, "users:", "user:", 1) },
		func() { text = "" },
		func() { mode = 0o644 },
	}
	if int(fault) < len(faults) {
		fine = false
		faults[fault]()
	}
	// As one step, so that the mode is never that of the file before.
	next := f.file + ".next"
	f.must(os.WriteFile(next, []byte(text), 0o600))
	f.must(os.Chmod(next, mode))
	f.must(os.Rename(next, f.file))
	policy, err := readUsersFile(f.file)
	if (err == nil) != fine {
		f.Fatalf("reading %q of mode %o = %v, want success %t", text, mode, err, fine)
	}
	if fine {
		f.good = m
	}
	f.reload.apply(policy, err, true)
	if f.reload.users.Stale() == fine {
		f.Fatalf("stale is %t after %q", !fine, text)
	}
}

func (f *usersFuzz) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// check compares the rights of all tokens with those of the last file without a fault, on new logins and on
// those of earlier files, and what became of the requests that wait.
func (f *usersFuzz) check() {
	for token := range byte(modelTokens) {
		login, _, err := f.reload.users.LogIn([]byte(modelToken(token)), "", access.From{})
		if err == nil && f.logins[token] == nil {
			f.logins[token] = login
		}
		for _, name := range []string{"a", "b"} {
			number, level := f.good.levelOf(token, name)
			f.checkLogin(login, name, number, level)
			f.checkLogin(f.logins[token], name, number, level)
		}
	}
	left := f.waits[:0]
	for _, w := range f.waits {
		number, level := f.good.levelOf(w.token, w.name)
		may := level >= gatehouse.LevelUse && number == w.user && f.good[number].prefix == w.prefix
		if w.refused == may {
			f.Fatalf("a request of u%d for lock/%s is refused: %t, with %q", w.user, w.name, w.refused,
				f.good.text())
		}
		if may {
			left = append(left, w)
		}
	}
	f.waits = left
}

// checkLogin checks what a login may do; nil is of a token that no file had.
func (f *usersFuzz) checkLogin(login *access.Login, name string, number byte, want gatehouse.Level) {
	var user *access.User
	if login != nil {
		user = f.reload.users.Current(login)
	}
	if user == nil {
		if want != gatehouse.NoLevel {
			f.Fatalf("no user may %s lock/%s, want u%d", want, name, number)
		}
		return
	}
	for level := gatehouse.LevelRead; level <= gatehouse.LevelManage; level++ {
		if user.May(gatehouse.Lock, name, level) != (level <= want) {
			f.Fatalf("%s may %s lock/%s: %t, want %s with %q", user.Name, level, name, level > want, want,
				f.good.text())
		}
	}
	if want != gatehouse.NoLevel && user.Name != fmt.Sprint("u", number) {
		f.Fatalf("the user is %s, want u%d", user.Name, number)
	}
}

// wait has a request wait for each lock, of each token that may take it.
func (f *usersFuzz) wait() {
	for token, login := range f.logins {
		for _, name := range []string{"a", "b"} {
			number, level := f.good.levelOf(token, name)
			if level < gatehouse.LevelUse {
				continue
			}
			w := &modelWait{token: token, user: number, prefix: f.good[number].prefix, name: name}
			user := f.reload.users.Current(login)
			of := user.NewWait(login, gatehouse.Key{Kind: gatehouse.Lock, Name: name}, gatehouse.OpAcquire)
			var err error
			w.Wait, err = f.reload.users.BeginWait(of, func(error) { w.refused = true })
			f.must(err)
			f.waits = append(f.waits, w)
		}
	}
}

// FuzzUsersReload reads one file of users after the other, of which some have faults. After a fault all have
// the rights of the last file without one, and no right is left that the file in force does not give: neither
// to those who log in, nor to those who have, nor to requests that wait.
func FuzzUsersReload(f *testing.F) {
	f.Add([]byte{9, 0x04, 0x09, 0x0e, 9, 0x80, 0x09, 0x1a, 0, 0x04, 0x09, 0x0e})
	f.Add([]byte{9, 0x08, 0x80, 0x80, 1, 0x04, 0x80, 0x80, 9, 0x48, 0x80, 0x80, 9, 0x80, 0x08, 0x80})
	f.Add([]byte{9, 0x08, 0x09, 0x80, 9, 0x09, 0x08, 0x80, 9, 0x08, 0x08, 0x80, 4, 0x08, 0x80, 0x80})
	f.Fuzz(func(t *testing.T, steps []byte) {
		first := usersModel{0: {token: 0, levels: [2]gatehouse.Level{gatehouse.LevelUse, 0}}}
		policy, err := access.ParsePolicy("first", []byte(first.text()))
		if err != nil {
			t.Fatal(err)
		}
		u := &usersFuzz{
			T: t, file: filepath.Join(t.TempDir(), "users.yaml"), good: first,
			logins: make(map[byte]*access.Login),
			reload: usersReload{users: access.NewUsers(policy, time.Now), log: slog.New(slog.DiscardHandler)},
		}
		steps = steps[:min(len(steps), 4*64)]
		for ; len(steps) >= 4; steps = steps[4:] {
			u.wait()
			u.write(steps[0], readModel(steps[1:4]))
			u.check()
		}
		for _, w := range u.waits {
			w.End()
		}
	})
}
