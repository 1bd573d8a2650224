package http

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/access"
	"github.com/gatehousehq/gatehouse/internal/access/accesstest"
	"github.com/gatehousehq/gatehouse/internal/await"
	"github.com/gatehousehq/gatehouse/internal/budget"
)

// Each command of a batch is judged apart, and those for one name in their order.
func TestBatch(t *testing.T) {
	r := newRig(t, Config{})
	got, _ := r.visit(t, postText(batchPath, `{"commands":[
		{"counter":"n","op":"count","amount":2},
		{"gcra":"a","op":"acquire","size":1,"interval":3600000},
		{"counter":"n","op":"count"},
		{"gcra":"a","op":"acquire","size":1,"interval":3600000,"maxwait":0},
		{"lock":"l","op":"acquire","key":"me","expires":60000},
		{"lock":"l","op":"acquire","key":"other"},
		{"lock":"l","op":"release","key":"nobody"},
		{"gcra":"missing","op":"peek"},
		{"gcra":"a","op":"acquire","cost":0},
		{"gcra":"a","op":"acquire","size":1,"cost":2},
		{"gcra":"\u0000","op":"acquire"},
		{"counter":"n","op":"value"},
		{"op":"stats","counter":"n"}
	]}`))
	want := `200 {"answers":[{"outcome":"granted","granted":true,"value":2},` +
		`{"outcome":"granted","granted":true,"limit":1,"remaining":0,` +
		`"retry_after":0,"reset_after":3600000},` +
		`{"outcome":"granted","granted":true,"value":3},` +
		`{"outcome":"refused","granted":false,…"detail":"gcra/a: acquire not granted at once; try again ` +
		`in …"},` +
		`{"outcome":"granted","granted":true,"limit":1,"remaining":0,"retry_after":0,` +
		`"key":"me","fence":…},` +
		`{"outcome":"refused",…"key":"other","detail":"lock/l: acquire not granted…"},` +
		`{"outcome":"conflict","granted":false,"detail":"lock/l is not held with this key…"},` +
		`{"outcome":"missing","granted":false,"detail":"gcra/missing does not exist"},` +
		`{"outcome":"invalid","granted":false,"detail":"cost is \"0\", want…"},` +
		`{"outcome":"invalid","granted":false,"detail":"gcra/a: cost 2 can never fit a size of 1"},` +
		`{"outcome":"invalid",…control character…},` +
		`{"outcome":"granted","granted":true,"value":3},` +
		`{"outcome":"granted","granted":true,"stats":{"value":3,…}}]}`
	if !matches(got, want) {
		t.Errorf("the batch is answered\n%s, want\n%s", got, want)
	}
}

// What is said of owners, and done by operators, is said in a batch as it is elsewhere.
func TestBatchOfOperators(t *testing.T) {
	r := newRig(t, Config{})
	got, _ := r.visit(t, postText(batchPath, batchOf(
		`{"lock":"l","op":"acquire","key":"k","expires":60000,"owner":"train-a","host":"g1",`+
			`"purpose":"eval"}`,
		`{"lock":"l","op":"close","owner":"ops","reason":"maintenance"}`,
		`{"lock":"l","op":"evict","id":"h1","now":true}`)))
	want := `200 {"answers":[{"outcome":"granted",…"fence":…},{"outcome":"granted",…},` +
		`{"outcome":"conflict",…no hold with this id…}]}`
	if !matches(got, want) {
		t.Errorf("the batch is answered\n%s, want\n%s", got, want)
	}
	got, _ = r.visit(t, "GET /v1/lock/l/holders HTTP/1.1\r\nHost: localhost\r\n\r\n")
	if !strings.Contains(got, `"owner":"train-a","host":"g1","purpose":"eval"`) {
		t.Errorf("the holders are %s", got)
	}
}

// batchOf returns a batch of commands as they are in the table.
func batchOf(commands ...string) string { return `{"commands":[` + strings.Join(commands, ",") + `]}` }

// A thousand commands for one name, and for as many, are decided in order.
func TestBatchOfAThousand(t *testing.T) {
	r := newRig(t, Config{})
	for _, name := range []string{`"n"`, `"n%d"`} {
		var commands []string
		for i := range maxBatch {
			name := name
			if strings.Contains(name, "%") {
				name = fmt.Sprintf(name, i)
			}
			commands = append(commands, fmt.Sprintf(`{"counter":%s,"op":"count","amount":%d}`, name, i+1))
		}
		got, _ := r.visit(t, postText(batchPath, batchOf(commands...)))
		var answers struct{ Answers []struct{ Value int } }
		_, body, _ := strings.Cut(got, " ")
		if err := json.Unmarshal([]byte(body), &answers); err != nil || len(answers.Answers) != maxBatch {
			t.Fatalf("the answer is %.200s, %v, want %d", got, err, maxBatch)
		}
		sum := 0
		for i, a := range answers.Answers {
			sum += i + 1
			want := sum
			if name != `"n"` {
				want = i + 1
			}
			if a.Value != want {
				t.Fatalf("answer %d of %s is %d, want %d", i, name, a.Value, want)
			}
		}
		commands = append(commands, commands[0])
		r.wantBad(t, batchPath, batchOf(commands...), "commands are more than 1000")
	}
}

func TestBadBatches(t *testing.T) {
	r := newRig(t, Config{})
	const good = `{"counter":"untouched","op":"count"}`
	for body, want := range map[string]string{
		``:                               "body is empty",
		`[]`:                             "body is an array, want an object",
		`{}`:                             "commands is missing or empty, want 1 to 1000",
		`{"commands":[]}`:                "commands is missing or empty",
		`{"commands":{}}`:                "commands is an object, want an array",
		`{"command":[]}`:                 `"command" is unknown, want commands`,
		`{"commands":[5]}`:               "commands[0]: this is a number, want an object",
		`{"commands":[{}]}`:              "commands[0]: no name is given",
		batchOf(good, `{"counter":"n"}`): "commands[1]: op is \"\", want one of count value",
		batchOf(good, `{"counter":"n","op":"acquire"}`): "want one of count value " +
			"reset stats for a counter",
		batchOf(good, `{"counter":"n","op":"delete"}`):            `op is "delete", want one of`,
		batchOf(good, `{"counter":"n","op":"undo"}`):              `op is "undo"`,
		batchOf(good, `{"lock":"n","op":"holders"}`):              `op is "holders"`,
		batchOf(good, `{"counter":"n","op":5}`):                   `op is a number "5", want a text`,
		batchOf(good, `{"grant":"n","op":"renew"}`):               `parameter "grant" is unknown`,
		batchOf(good, `{"gcra":"n","op":"settle"}`):               `op is "settle"`,
		batchOf(good, `{"gcra":"n","op":"acquire","maxwait":-1}`): `maxwait is "-1", want 0`,
		batchOf(good, `{"gcra":"n","op":"acquire","maxwait":5}`):  `maxwait is "5", want 0`,
		batchOf(good, `{"gcra":"n","op":"acquire","maxwait":"0"}`): `maxwait is a text "0", ` +
			`want a number`,
		batchOf(good, `{"gcra":"n","op":"acquire","details":true}`): `parameter "details" is unknown`,
		batchOf(good, `{"gcra":"n","op":"acquire","size":"5"}`): `size is a text "5", want a ` +
			`number`,
		batchOf(good, `{"lock":"n","op":"acquire","extend":"true"}`): `extend is a text "true", ` +
			`want true or false`,
		batchOf(good, `{"lock":"n","op":"acquire","key":5}`): `key is a number "5", want ` +
			`a text`,
		batchOf(good, `{"gcra":"n","op":"acquire","size":[5]}`): `"size" is an array, want a ` +
			`single value`,
		batchOf(good, `{"gcra":"n","lock":"n","op":"acquire"}`):            "gcra and lock are both given",
		batchOf(good, `{"gcra":"n","op":"acquire","op":"peek"}`):           `has "op" twice`,
		batchOf(good, `{"gcra":"n","op":"acquire"}`) + "x":                 "want the end of the body",
		`{"commands":[` + good + `],"commands":[` + good + `]}`:            `body has "commands" twice`,
		strings.Repeat(`{"commands":[`, maxBatchBody/len(`{"commands":[`)): "commands[0]: ",
	} {
		r.wantBad(t, batchPath, body, want)
	}
	got, _ := r.visit(t, postText(batchPath, batchOf(`{"counter":"untouched","op":"value"}`)))
	if !strings.Contains(got, `"value":0`) {
		t.Errorf("after bad batches the counter is %s, want 0", got)
	}
}

// What is held by a client that has left is taken back, wherever it stands in the batch.
func TestBatchOfAClientThatHasLeft(t *testing.T) {
	s := newFar()
	r := newRigOn(t, Config{}, s)
	defer s.letGo()
	c := r.dial(t)
	c.post(batchPath, batchOf(`{"lock":"l","op":"acquire","key":"gone","expires":0}`,
		`{"lock":"held","op":"acquire","key":"gone","expires":0}`, `{"counter":"n","op":"count"}`))
	s.inHand(t, 1)
	_ = c.Close()
	s.letGo()
	next := r.dial(t)
	for _, name := range []string{"l", "held"} {
		next.send("/lock/" + name + "/acquire?key=next&maxwait=20000")
		next.want(200, "next")
	}
	await.True(t, "one connection is open", func() bool { return r.open.Load() == 1 })
}

// Without room for a long answer a batch has short ones, and without room for those it is not begun.
func TestBatchWithoutRoom(t *testing.T) {
	var commands []string
	for i := range 200 {
		commands = append(commands, fmt.Sprintf(`{"gcra":"n%d","op":"acquire","size":5}`, i))
	}
	body := batchOf(commands...)
	for most, want := range map[int64]string{
		1 << 20:                `200 {"answers":[{"outcome":"granted","granted":true,"limit":5`,
		shortAnswer*200 + 4000: `200 {"answers":[{"outcome":"granted","granted":true},{`,
		shortAnswer*200 - 1:    "503 ",
	} {
		r := newRig(t, Config{Budget: budget.New(most)})
		got, _ := r.visit(t, postText(batchPath, body))
		if !strings.HasPrefix(got, want) {
			t.Errorf("with room for %d bytes the answer is %.200s, want %s", most, got, want)
		}
	}
}

// A batch that is refused for want of room counts for nothing: its user can begin what the quota allows.
func TestBatchWithoutRoomCountsNothing(t *testing.T) {
	policy := accesstest.Policy(t, "may: [{on: '*', do: use}], at-most: {holders: 1}")
	r := newRig(t, Config{Budget: budget.New(shortAnswer*200 - 1), Users: access.NewUsers(policy, time.Now)})
	commands := []string{`{"lock":"1","op":"acquire","key":"k","expires":0}`}
	for range 200 {
		commands = append(commands, `{"counter":"c","op":"value"}`)
	}
	ask := func(body string) string {
		got, _ := r.visit(t, strings.Replace(postText(batchPath, body), "\r\n",
			"\r\nAuthorization: Bearer secret\r\n", 1))
		return got
	}
	if got := ask(batchOf(commands...)); !strings.HasPrefix(got, "503 ") {
		t.Errorf("a batch without room: %.200s, want 503", got)
	}
	other := strings.Replace(commands[0], "1", "2", 1)
	if got := ask(batchOf(other)); !strings.Contains(got, `"granted":true`) {
		t.Errorf("a batch of one lock behind it: %s, want it granted", got)
	}
}

// What a batch has taken of the budget in advance comes back if its client leaves before it is decided.
func TestBatchOfAClientThatLeaves(t *testing.T) {
	s, shared := newFar(), budget.New(0)
	r := newRigOn(t, Config{Budget: shared}, s)
	defer s.letGo()
	c := r.dial(t)
	commands := []string{`{"op":"acquire","lock":"held","key":"k"}`}
	for range budget.Tiny / shortAnswer {
		commands = append(commands, `{"op":"value","counter":"c"}`)
	}
	body := batchOf(commands...)
	if _, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\n\r\n%s", batchPath, len(body), body); err != nil {
		t.Fatal(err)
	}
	s.inHand(t, 1)
	if shared.Used() == 0 {
		t.Error("a long batch takes nothing of the budget")
	}
	_ = c.Close()
	r.untilHungUp(t)
	s.letGo()
	await.True(t, "the connection is closed", func() bool { return r.open.Load() == 0 })
	if used := shared.Used(); used != 0 {
		t.Errorf("%d bytes of the budget are taken, want 0", used)
	}
}
