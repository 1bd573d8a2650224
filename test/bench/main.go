// Command bench measures Gatehouse against floors, the least that the same thing can cost on the
// same machine, and writes the page docs/benchmarks.md. It needs Linux, taskset, nginx, wrk
// and Redis.
//
// Floors and ours are measured in turns, round by round, because what else goes on in a machine
// changes from second to second. The page shows a budget that is missed; it is no failure.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// A bench is what every section is measured with.
type bench struct {
	rounds int
	quick  bool
	self   string // this program
	ours   string // the server, built
	dir    string // for files that are needed meanwhile

	servers []*server // that run
}

// scale is how much to do: the first number, or the second in a quick run.
func (b *bench) scale(full, quick int) int {
	if b.quick {
		return quick
	}
	return full
}

// A section is one part of the page.
type section struct {
	name    string // what -only matches
	title   string
	measure func(context.Context, *bench) (text string, rows []row, err error)
}

// sections are all of them, in the order of the page. The million keys come after the others that
// are measured in this process, because their store stays until its timers have fired.
func sections() []section {
	return []section{
		{"hot", "One hot key, in process, one goroutine", hotKey},
		{"line", "Many in one line, in process", lines},
		{"direct", "Limiters without a server, in process", direct},
		{"sliding", "The sliding window of RussellLuo/slidingwindow, in process", sliding},
		{"leases", "Decisions about leases on capacity, in process", decisions},
		{"grant", "One decision over four names", grants},
		{"keys", "A million keys, in process, two goroutines", manyKeys},
		{"resp", "CPU of the server for one RESP command", commands},
		{"blocked", "Many connections that wait in a RESP command", blocked},
		{"jarl", "CPU of the server for one JARL connection", connections},
		{"redis", "Limits in Redis, 512 callers", onRedis},
		{"grpc", "CPU of the server for one call of doorman's protocol", capacityCalls},
		{"http", "CPU of the server for one HTTP request", requests},
		{"client", "CPU of a Go program for one answer over HTTP", goClient},
		{"waiters", "Many connections that wait for one event", waiters},
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	out := flags.String("out", "", "file to write the page to; empty prints it")
	rounds := flags.Int("rounds", 5, "how often everything is measured")
	quick := flags.Bool("quick", false, "one short round, to see that all of it works")
	only := flags.String("only", "", "measure only the sections whose name matches this pattern")
	as := flags.String("as", "", "what this program is for another bench, with an address behind")
	if err := flags.Parse(args); err != nil {
		return err
	}
	// A role needs no server built and no page: the process is a part of another bench.
	if *as != "" {
		return play(*as, flags.Args())
	}
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	b := &bench{rounds: max(1, *rounds), quick: *quick}
	if b.quick {
		// A quick run shows that all of it works; more rounds would only make figures better that the page
		// disowns.
		b.rounds = 1
	}
	clean, err := b.prepare(ctx)
	if err != nil {
		return err
	}
	// Servers are stopped after each section, so nothing still runs from the folder that is removed.
	defer clean()
	page, err := b.write(ctx, pattern)
	if err != nil {
		return err
	}
	if *out == "" {
		_, err = os.Stdout.WriteString(page)
		return err
	}
	return os.WriteFile(*out, []byte(page), 0o644) //nolint:gosec // a page is there to be read
}

// prepare builds the server from the folder above.
func (b *bench) prepare(ctx context.Context) (clean func(), err error) {
	b.self, err = os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	b.dir, err = os.MkdirTemp("", "gatehouse-bench-")
	if err != nil {
		return nil, err
	}
	b.ours = filepath.Join(b.dir, "gatehouse")
	// The binary is built again, so that the page never speaks of an older one.
	build := exec.CommandContext(ctx, "go", "build", "-o", b.ours, "./cmd/gatehouse")
	build.Dir, build.Stderr = "../..", os.Stderr
	if err := build.Run(); err != nil {
		_ = os.RemoveAll(b.dir)
		return nil, fmt.Errorf("building the server, to be done in folder bench: %w", err)
	}
	return func() { _ = os.RemoveAll(b.dir) }, nil
}

// write measures the sections that match and returns the page.
func (b *bench) write(ctx context.Context, only *regexp.Regexp) (string, error) {
	page, err := head(ctx, b)
	if err != nil {
		return "", err
	}
	for _, s := range sections() {
		if !only.MatchString(s.name) {
			continue
		}
		start := time.Now()
		text, rows, err := b.measureAtRest(ctx, s)
		if err != nil {
			return "", fmt.Errorf("section %s: %w", s.name, err)
		}
		fmt.Fprintf(os.Stderr, "%-8s measured in %.0f s\n", s.name, time.Since(start).Seconds())
		page += "\n## " + s.title + "\n\n" + text + "\n\n" + table(rows)
	}
	return page, nil
}
