//go:build linux || darwin

// Command chaos kills and stops servers and their stores while clients work with them, and then holds what
// the clients were told against what is promised. It ends with status 1 when anything was broken.
//
//	go run ./test/chaos -store disk -seconds 60
//	go run ./test/chaos -store all -seconds 60 -json
//
// It needs go, and redis-server for the stores redis-kept and redis-empty. etcd is built at first use.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gatehousehq/gatehouse/internal/servertest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := runCommand(ctx, os.Args[1:], os.Stdout)
	// Not deferred: os.Exit runs no deferred calls.
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

var errBroken = errors.New("promises were broken, see above")

const wantStore = "disk, redis-kept, redis-empty, redis for both, etcd, memory or all"

// sets are names for several variants.
var sets = map[string][]string{
	"all":   {"disk", "redis-kept", "redis-empty", "etcd", "memory"},
	"redis": {"redis-kept", "redis-empty"},
}

// runCommand runs what the arguments ask for.
func runCommand(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	seconds := flags.Int("seconds", 60, "how long each store is under load")
	store := flags.String("store", "all", wantStore+"; several with commas")
	clients := flags.Int("clients", 48, "how many clients there are")
	pause := flags.Duration("pause", 4*time.Millisecond, "of a client between two calls, on average")
	slack := flags.Duration("slack", time.Second, "for answers that the machine is late with")
	seed := flags.Uint64("seed", 0, "of the chances; 0 draws one")
	keep := flags.Bool("keep", false, "keep logs and data, which are kept anyway when something was broken")
	asJSON := flags.Bool("json", false, "report as JSON, one line for each store")
	if err := flags.Parse(args); err != nil {
		return err
	}
	// All arguments are checked before the build, which takes long.
	chosen, err := chooseVariants(*store)
	if err != nil {
		return err
	}
	if *seconds < 1 || *clients < 1 || *pause < 0 {
		return errors.New("-seconds and -clients must be above 0, -pause not below")
	}
	// The report shows the seed, so that the same faults can be drawn again.
	if *seed == 0 {
		*seed = rand.Uint64N(1_000_000)
	}
	folder, err := os.MkdirTemp("", "gatehouse-chaos")
	if err != nil {
		return err
	}
	c := chaosConfig{
		length: time.Duration(*seconds) * time.Second, clients: *clients, pause: *pause, slack: *slack,
		seed: *seed,
	}
	c.binary, err = servertest.Build(ctx, folder)
	if err != nil {
		return err
	}
	kept := true
	// One store after the other: together they would slow each other down.
	for _, v := range chosen {
		c.folder = filepath.Join(folder, v.name)
		p, err := testStore(ctx, v, c)
		if err != nil {
			return fmt.Errorf("%s: %w", v.name, err)
		}
		// After a breach the other stores are still tried.
		kept = kept && p.asExpected()
		if *asJSON {
			err = json.NewEncoder(out).Encode(p)
		} else {
			p.writeText(out)
		}
		if err != nil {
			return err
		}
	}
	return removeFolder(folder, kept, *keep)
}

// removeFolder removes logs and data, or says where they are.
func removeFolder(folder string, kept, keep bool) error {
	// A breach is explained by the logs, so they stay then.
	switch {
	case !kept:
		return fmt.Errorf("%w; logs and data are in %s", errBroken, folder)
	case keep:
		fmt.Fprintln(os.Stderr, "logs and data are in", folder)
		return nil
	}
	return os.RemoveAll(folder)
}

// chooseVariants is the variants of that name, or those names.
func chooseVariants(names string) ([]*variant, error) {
	var list []*variant
	for name := range strings.SplitSeq(names, ",") {
		wanted, ok := sets[name]
		// Any other name is that of one variant, or a mistake.
		if !ok {
			wanted = []string{name}
		}
		for _, name := range wanted {
			i := slices.IndexFunc(variants, func(v variant) bool { return v.name == name })
			if i < 0 {
				return nil, fmt.Errorf("-store is %q, want %s", name, wantStore)
			}
			list = append(list, &variants[i])
		}
	}
	return list, nil
}

// testStore puts one store to the test.
func testStore(ctx context.Context, v *variant, c chaosConfig) (*runReport, error) {
	if err := os.MkdirAll(c.folder, 0o755); err != nil {
		return nil, err
	}
	r, err := runChaos(ctx, v, c)
	if err != nil {
		return nil, err
	}
	return newReport(judgeRun(r)), nil
}

// asExpected reports whether a run was as it should be: a store that forgets must be found out.
func (p *runReport) asExpected() bool { return p.Kept != p.Forgets }
