package resp

import (
	"bufio"
	"os"
	"strings"
	"testing"
	"time"
)

// A step is a line of a script: a command at a time, and its answer.
type step struct {
	at              time.Duration
	command, answer string
	line            int
}

// script reads lines such as "at 3s CL.THROTTLE a 4 1 1 -> 0 5 2 -1 3  # a comment".
func script(t *testing.T, name string) []step {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	var steps []step
	scanner := bufio.NewScanner(file)
	for n := 1; scanner.Scan(); n++ {
		line, _, _ := strings.Cut(scanner.Text(), "  # ")
		if line == "" || line[0] == '#' {
			continue
		}
		command, answer, ok := strings.Cut(strings.TrimPrefix(line, "at "), "->")
		at, command, _ := strings.Cut(command, " ")
		passed, err := time.ParseDuration(at)
		if err != nil || !ok {
			t.Fatalf("%s:%d is %q, want at TIME COMMAND -> ANSWER", name, n, line)
		}
		steps = append(steps, step{passed, strings.TrimSpace(command), strings.TrimSpace(answer), n})
	}
	return steps
}

func TestThrottleScript(t *testing.T) {
	for _, hello := range []string{"HELLO 2", "HELLO 3"} {
		t.Run(hello, func(t *testing.T) {
			d, clock := openStill(t)
			c := d.dial(t)
			c.ask(hello)
			for _, s := range script(t, "testdata/throttle.txt") {
				clock.passed.Store(int64(s.at))
				got := c.ask(s.command)
				if parts, ok := strings.CutPrefix(got, "["); ok { // RESP3 marks what has fractions
					got = strings.ReplaceAll(strings.TrimSuffix(parts, "]"), ",", "")
				}
				if got != s.answer {
					t.Errorf("line %d, at %s: %s = %s, want %s", s.line, s.at, s.command, got, s.answer)
				}
			}
		})
	}
}
