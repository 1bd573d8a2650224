package e2e

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A script is a fact about the server, and requests by which it shows. Its lines are
//
//	counter/{}/count -> 200 1              a GET below /v1/, answered by this status and body
//	/counter/{}/count -> 200 2             a GET of a path as it is
//	DELETE counter/{} -> 204               another method
//	3x counter/{}/count -> 200             three times the same
//	w1: event/{}/wait                      a request that waits, and is known to when the next line runs
//	w1 -> 204                              its answer
//	w1 hangs up                            its client goes away, and is known to be gone
//	w1 leaves                              its client goes away
//	300ms pass                             by the clock of the server
//
// {} is a fresh name. An answer without a body may have any; … stands for anything. It may be followed
// by headers, "[Allow: GET]", of which "[Allow: -]" must be absent and ~60 stands for 60 seconds or a few
// less, and by "after 300ms": the answer comes no earlier, and not much later. What follows two spaces
// and a # is a comment.
type script struct{ fact, lines string }

// play runs scripts on the shared server, all at the same time.
func play(t *testing.T, scripts []script) {
	t.Helper()
	for _, s := range scripts {
		t.Run(s.fact, func(t *testing.T) {
			t.Parallel()
			playOn(t, shared(), s.lines)
		})
	}
}

// playOn runs one script on a server.
func playOn(t *testing.T, s *server, lines string) {
	t.Helper()
	p := &player{t: t, server: s, name: fresh(t), waiters: map[string]*conn{}, places: map[string]string{}}
	for line := range strings.SplitSeq(lines, "\n") {
		line, _, _ = strings.Cut(line, "  #")
		if line = strings.TrimSpace(strings.ReplaceAll(line, "{}", p.name)); line != "" {
			p.step(line)
		}
		if t.Failed() {
			t.Fatalf("in line %q", line)
		}
	}
}

type player struct {
	t       *testing.T
	server  *server
	name    string
	waiters map[string]*conn
	places  map[string]string // where they wait
}

var (
	waiterLine = regexp.MustCompile(`^(\w+): (\S+)$`)
	timesLine  = regexp.MustCompile(`^(\d+)x (.*)$`)
	afterPart  = regexp.MustCompile(` after (\S+)$`)
	headerPart = regexp.MustCompile(` \[([\w-]+): ([^\]]*)\]$`)
)

func (p *player) step(line string) {
	p.t.Helper()
	left, right, asks := strings.Cut(line, " -> ")
	switch waiter := waiterLine.FindStringSubmatch(line); {
	case asks && p.waiters[left] != nil:
		p.compare(left, p.waiters[left], right)
	case asks:
		p.ask(left, right)
	case waiter != nil:
		p.waiters[waiter[1]] = p.server.wait(p.t, path(waiter[2]))
		p.places[waiter[1]] = placeOf(path(waiter[2]))
	case strings.HasSuffix(line, " pass"):
		p.server.passes(p.t, p.duration(strings.TrimSuffix(line, " pass")))
	case strings.HasSuffix(line, " hangs up"):
		p.hangUp(strings.TrimSuffix(line, " hangs up"))
	case strings.HasSuffix(line, " leaves"):
		p.waiters[strings.TrimSuffix(line, " leaves")].hangUp()
	default:
		p.t.Fatalf("line %q of a script is none of those there are", line)
	}
}

// path completes a path below /v1/.
func path(short string) string {
	if strings.HasPrefix(short, "/") {
		return short
	}
	return "/v1/" + short
}

func (p *player) ask(request, want string) {
	p.t.Helper()
	times := 1
	if parts := timesLine.FindStringSubmatch(request); parts != nil {
		times, _ = strconv.Atoi(parts[1])
		request = parts[2]
	}
	if method, rest, ok := strings.Cut(request, " "); ok {
		request = method + " " + path(rest)
	} else {
		request = path(request)
	}
	for range times {
		c := p.server.dial(p.t)
		c.ask(request)
		p.compare(request, c, want)
		_ = c.Close()
	}
}

// compare reads the answer on a connection, and holds it against the right side of a line.
func (p *player) compare(what string, c *conn, want string) {
	p.t.Helper()
	a := c.answer()
	took := time.Since(c.asked)
	if parts := afterPart.FindStringSubmatch(want); parts != nil {
		want = strings.TrimSuffix(want, parts[0])
		if least := p.duration(parts[1]); took < least || took > least+patience/3 {
			p.t.Errorf("%s was answered after %s, want %s", what, took, least)
		}
	}
	for parts := headerPart.FindStringSubmatch(want); parts != nil; {
		want = strings.TrimSuffix(want, parts[0])
		p.compareHeader(what, a, parts[1:])
		parts = headerPart.FindStringSubmatch(want)
	}
	if !a.is(want) {
		p.t.Errorf("%s = %s, want %s", what, a, want)
	}
}

func (p *player) compareHeader(what string, a *answer, header []string) {
	p.t.Helper()
	got, there := strings.Join(a.header.Values(header[0]), ", "), a.header.Values(header[0]) != nil
	if header[1] == "-" && there {
		p.t.Errorf("%s has %s: %s, want no such header", what, header[0], got)
	}
	if header[1] != "-" && (!there || !matches(roughly(header[1], got), got)) {
		p.t.Errorf("%s has %s: %s, want %s", what, header[0], got, header[1])
	}
}

// roughly puts the number that a text ends with in the place of ~60, if it is nearly that.
func roughly(pattern, text string) string {
	before, number, rough := strings.Cut(pattern, "~")
	if !rough {
		return pattern
	}
	wanted, _ := strconv.Atoi(number)
	got, _ := strconv.Atoi(text[strings.LastIndexFunc(text, notDigit)+1:])
	if got > wanted || got < wanted-max(2, wanted/6) {
		return pattern
	}
	return before + strconv.Itoa(got)
}

func notDigit(r rune) bool { return r < '0' || r > '9' }

func (p *player) duration(text string) time.Duration {
	p.t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		p.t.Fatal(err)
	}
	return d
}

func (p *player) hangUp(waiter string) {
	p.t.Helper()
	place := p.places[waiter]
	before := p.server.stat(p.t, place, "waiting")
	p.waiters[waiter].hangUp()
	p.server.inLine(p.t, place, before-1)
}
