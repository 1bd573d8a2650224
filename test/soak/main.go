//go:build linux

// Command soak attacks a server in many ways at once while honest clients work with it. It reports the
// server's memory and the honest clients' latency, and ends with status 1 when memory exceeds its limit, when
// something that was granted is lost, or when the server ends.
//
//	go run ./test/soak -seconds 300
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"

	"github.com/gatehousehq/gatehouse/internal/servertest"
)

func main() {
	// The attackers are this same program, started again.
	if os.Getenv(attackersVariable) != "" {
		if err := playAttackers(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "soak: attackers:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := runCommand(ctx, os.Args[1:], os.Stdout)
	// Not deferred: os.Exit runs no deferred calls.
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

var errFailed = errors.New("the server did not keep what it promises, see above")

// A soakConfig says what a run is like.
type soakConfig struct {
	length time.Duration // of the attack; calm takes a quarter of it before
	memory int64         // bytes that the server may have in all
	scale  int           // how many connections and requests there are, in percent
	only   string        // of the names of attacks, a pattern
	judge  bool          // latency as well
	binary string
	folder string
	out    io.Writer // progress
}

// runCommand runs what the arguments ask for.
func runCommand(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	seconds := flags.Int("seconds", 60, "how long the attack lasts")
	memory := flags.Int64("memory", 512, "MiB that the server may have")
	only := flags.String("only", "", "attacks whose names match")
	list := flags.Bool("list", false, "list the attacks and end")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *list {
		for _, a := range attacks {
			_, _ = fmt.Fprintf(out, "%-22s %s\n", a.name, a.about)
		}
		return nil
	}
	// The attackers compile it again. A mistake is reported here, before the build.
	if _, err := regexp.Compile(*only); err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	if *seconds < 1 || *memory < 64 {
		return errors.New("-seconds must be above 0, -memory at least 64")
	}
	// It is removed after a good run, and kept with the log after any other.
	folder, err := os.MkdirTemp("", "gatehouse-soak")
	if err != nil {
		return err
	}
	c := soakConfig{
		length: time.Duration(*seconds) * time.Second, memory: *memory << 20, scale: 100, only: *only,
		judge: true, folder: folder, out: out,
	}
	c.binary, err = servertest.Build(ctx, folder)
	if err != nil {
		return err
	}
	r, err := runSoak(ctx, c)
	if err != nil {
		return fmt.Errorf("%w; the log is in %s", err, folder)
	}
	r.writeText(out)
	if !r.isGood() {
		return fmt.Errorf("%w; the log is in %s", errFailed, folder)
	}
	return os.RemoveAll(folder)
}
