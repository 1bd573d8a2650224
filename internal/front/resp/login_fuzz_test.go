package resp

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/access"
)

// A loginStep is a command of a pipeline. then is who sends the rest of it, given who sends this command: ""
// is nobody. want is how its answer begins.
type loginStep struct {
	command string
	then    func(user string) string
	want    func(user string) string
}

// loginSteps are the commands of FuzzLogin, with what they must do: only those that need no login, or of a
// user that may do this, may succeed.
func loginSteps(tokens map[string]string) []loginStep {
	same := func(user string) string { return user }
	becomes := func(next string) func(string) string { return func(string) string { return next } }
	always := func(answer string) func(string) string { return func(string) string { return answer } }
	// known is an answer to any user, and allowed to one of them alone.
	known := func(answer string) func(string) string {
		return func(user string) string {
			if user == "" {
				return "-NOAUTH"
			}
			return answer
		}
	}
	allowed := func(only, answer string) func(string) string {
		return func(user string) string {
			if user != "" && user != only {
				return "-NOPERM"
			}
			return known(answer)(user)
		}
	}
	return []loginStep{
		{"AUTH " + tokens["ann"], becomes("ann"), always("OK")},
		{"AUTH bob " + tokens["bob"], becomes("bob"), always("OK")},
		{"auth default " + tokens["bob"], becomes("bob"), always("OK")},
		{"AUTH ann " + tokens["bob"], same, always("-WRONGPASS")},
		{"AUTH ann wrong", same, always("-WRONGPASS")},
		{"AUTH a b c", same, always("-ERR")},
		{"AUTH", same, always("-ERR")},
		{"HELLO 3 AUTH ann " + tokens["ann"], becomes("ann"), always("{")},
		{"HELLO 2 SETNAME x AUTH bob " + tokens["bob"], becomes("bob"), always("[")},
		{"HELLO 2 AUTH bob wrong", same, always("-WRONGPASS")},
		// What is wrong with the rest of it undoes all of it.
		{"HELLO 2 AUTH bob " + tokens["bob"] + " NONSENSE", same, always("-ERR")},
		{"HELLO 4 AUTH bob " + tokens["bob"], same, always("-NOPROTO")},
		{"HELLO 2", same, known("[")},
		{"RESET", becomes(""), always("RESET")},
		{"PING", same, known("PONG")},
		{"ACL WHOAMI", same, func(user string) string { return known(user)(user) }},
		{"CL.THROTTLE ann/rate 999999 1000000 1", same, allowed("ann", "[0 ")},
		{"GH.COUNT counter/ann/c", same, allowed("ann", "")},
		{"GH.ACQUIRE semaphore/bob/s SIZE 1000000 MAXWAIT 0", same, allowed("bob", "")},
		{"GH.GRANT MAXWAIT 0 WANT gcra/ann/a SIZE 9 WANT gcra/bob/b SIZE 9", same, allowed("both", "")},
		{"GH.RESET counter/bob/c", same, allowed("nobody", "")}, // needs the right to manage
		{"GH.DELETE lock/bob/none", same, allowed("nobody", "")},
	}
}

// FuzzLogin sends pipelines of logins and other commands, cut into packets anywhere. Each command must be
// judged for the user of the last AUTH or HELLO that succeeded since the last RESET, whatever stands beside
// it.
func FuzzLogin(f *testing.F) {
	tokens, lines := make(map[string]string), "users:\n"
	for _, name := range []string{"ann", "bob"} {
		token, hash := access.NewToken()
		tokens[name] = token
		lines += fmt.Sprintf("  - {name: %[1]s, tokens: ['%[2]s'], may: [{on: '*/%[1]s/*', do: use}]}\n",
			name, hash)
	}
	policy, err := access.ParsePolicy("users.yaml", []byte(lines))
	if err != nil {
		f.Fatal(err)
	}
	steps := loginSteps(tokens)
	all := make([]byte, len(steps))
	for i := range all {
		all[i] = byte(i) // fewer than 256
	}
	f.Add(all, 7)
	f.Add([]byte{0, 16, 13, 16, 1, 16, 13, 17}, 1)
	f.Add([]byte{0, 16, 16, 1, 16, 16, 7, 16}, 1000)
	f.Add([]byte{15, 0, 4, 15, 9, 15, 10, 15, 11, 15}, 60)
	f.Fuzz(func(t *testing.T, chosen []byte, piece int) {
		d := open(t, Config{Users: access.NewUsers(policy, time.Now)})
		c, sent, user := d.dial(t), "", ""
		chosen = chosen[:min(len(chosen), 40)] // below the limit of bytes before AUTH
		for _, i := range chosen {
			sent += wire(strings.Fields(steps[int(i)%len(steps)].command)...)
		}
		for piece = max(piece, 1+len(sent)/20); len(sent) > 0; {
			n := min(piece, len(sent))
			c.send(sent[:n])
			sent = sent[n:]
		}
		for at, i := range chosen {
			step := steps[int(i)%len(steps)]
			want := step.want(user)
			got := c.answer()
			if !strings.HasPrefix(got, want) || want == "" && strings.HasPrefix(got, "-") {
				t.Errorf("command %d of %v, %s by %q = %s, want %s…", at, chosen, step.command, user, got,
					want)
			}
			user = step.then(user)
		}
	})
}
