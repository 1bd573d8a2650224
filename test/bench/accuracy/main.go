// Command accuracy tries every limiter on made-up traffic, in virtual time, and says how often each of
// them decides otherwise than an exact log would: the page docs/accuracy.md.
//
// The traffic comes from a seed, and no clock is read: the same seed gives the same page.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

// What all limiters are tried with: size requests in any stretch as long as window.
const (
	size   = 100
	window = time.Second
)

// origin is when all traffic begins: the start of a window, and of a part of a fine one as well. Those
// parts are counted from 1970 and rounded up to 16,666,667 ns, so that such an instant is rare.
const origin = 107 * 16_666_667 * int64(time.Second)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "accuracy:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("accuracy", flag.ContinueOnError)
	flags.SetOutput(stderr)
	out := flags.String("out", "", "file to write the page to as well")
	seed := flags.Uint64("seed", 1, "what all traffic is made from")
	windows := flags.Int("windows", 2000, "how many windows each traffic lasts, the mix of keys a hundredth")
	if err := flags.Parse(args); err != nil {
		return err
	}
	// Without a window there would be no request, and the shares on the page would divide by zero.
	if *windows < 1 {
		return fmt.Errorf("-windows is %d, want at least 1", *windows)
	}
	// Progress goes to stderr: the page on stdout must be the same for the same seed.
	results := measure(plan{seed: *seed, windows: *windows, progress: stderr})
	page := write(plan{seed: *seed, windows: *windows}, results)
	if _, err := io.WriteString(stdout, page); err != nil {
		return err
	}
	if *out == "" {
		return nil
	}
	return os.WriteFile(*out, []byte(page), 0o644) //nolint:gosec // a page is there to be read
}
