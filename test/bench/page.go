package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A row compares something of ours with its floor.
type row struct {
	what   string
	floor  series // empty when there is none
	ours   series
	unit   func(float64) string
	budget budget
	note   string
}

// A budget is the most that a ratio may be, or, when absolute, that ours may be. 0 is no budget.
type budget struct {
	most     float64
	absolute bool
}

// table returns rows in Markdown.
func table(rows []row) string {
	var text strings.Builder
	text.WriteString("| what | floor | ours | ratio | budget | | beside |\n|---|---|---|---|---|---|---|\n")
	for _, r := range rows {
		// Without a floor there is no ratio: then ours itself is judged.
		floor, ratio, judged := "", "", r.ours.median()
		if len(r.floor) > 0 {
			// Ratios are taken within a round, because the machine changes from round to round; a ratio of
			// medians could set a quiet round against a busy one.
			ratios := r.ours.over(r.floor)
			floor, ratio = spread(r.floor, r.unit), spread(ratios, times)
			if !r.budget.absolute {
				judged = ratios.median()
			}
		}
		most, verdict := r.judge(judged)
		cells := []string{r.what, floor, spread(r.ours, r.unit), ratio, most, verdict, r.note}
		text.WriteString("| " + strings.Join(cells, " | ") + " |\n")
	}
	return text.String()
}

// judge says what the budget is and whether it was met.
func (r *row) judge(x float64) (most, verdict string) {
	if r.budget.most == 0 {
		return "", ""
	}
	// A budget is written as what it bounds: a ratio, or a figure in the unit of the row.
	unit := times
	if r.budget.absolute {
		unit = r.unit
	}
	verdict = "met"
	if x > r.budget.most {
		verdict = "**missed**"
	}
	return "≤ " + unit(r.budget.most), verdict
}

// spread is the median, and the least and the greatest beside it.
func spread(s series, unit func(float64) string) string {
	// Memory is measured once, and a quick run has one round: a range would repeat the same figure.
	if len(s) == 1 {
		return unit(s[0])
	}
	return fmt.Sprintf("%s (%s to %s)", unit(s.median()), unit(slices.Min(s)), unit(slices.Max(s)))
}

func times(x float64) string { return digits(x) + "×" }

// digits keeps three of them.
func digits(x float64) string {
	switch {
	case x == 0:
		return "0"
	// 9.995 and 99.95 are where rounding would add a digit.
	case x < 9.995:
		return fmt.Sprintf("%.2f", x)
	case x < 99.95:
		return fmt.Sprintf("%.1f", x)
	default:
		return fmt.Sprintf("%.0f", x)
	}
}

// nanoseconds writes a time in the unit that suits it.
func nanoseconds(x float64) string {
	switch {
	case x < 1e3:
		return digits(x) + " ns"
	case x < 1e6:
		return digits(x/1e3) + " µs"
	default:
		return digits(x/1e6) + " ms"
	}
}

// bytes writes a size in the unit that suits it.
func bytes(x float64) string {
	if x < 1<<10 {
		return fmt.Sprintf("%.0f B", x)
	}
	return digits(x/(1<<10)) + " KiB"
}

const preface = "# Benchmarks\n\n" +
	"`make bench` writes this page in some twenty minutes. Absolute times depend on the machine and on\n" +
	"what else it does, so they stand beside a floor: the least that the same thing can cost there,\n" +
	"measured in turns with ours. Figures are the median of the rounds and, behind it, the least and the\n" +
	"greatest. Ratios are taken round by round, and budgets are for the median. A section begins when\n" +
	"other programs use at most 10 % of the machine. It is measured again if other machines of the same\n" +
	"host took more than 10 % of its time.\n\n"

// head is the page down to its first section.
func head(ctx context.Context, b *bench) (string, error) {
	var system unix.Utsname
	if err := unix.Uname(&system); err != nil {
		return "", fmt.Errorf("uname: %w", err)
	}
	// Read before anything is measured: afterwards it would be the load of the benchmark itself.
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "", err
	}
	var text strings.Builder
	text.WriteString(preface)
	cpu := match("/proc/cpuinfo", `model name\s*: (.*)`)
	for _, fact := range [][2]string{
		{"date", time.Now().UTC().Format(time.DateOnly)},
		{"rounds", rounds(b)},
		{"processor", fmt.Sprintf("%s, %d cores", cpu, runtime.NumCPU())},
		{"kernel", "Linux " + unix.ByteSliceToString(system.Release[:])},
		// Of the five fields the first three are the averages; the others are about processes.
		{"load average before", strings.Join(strings.Fields(string(load))[:3], " ")},
		{"go", strings.TrimPrefix(runtime.Version(), "go")},
		{"fasthttp", moduleVersion("github.com/valyala/fasthttp")},
		{"gnet", moduleVersion("github.com/panjf2000/gnet/v2")},
		{"nginx", toolVersion(ctx, "nginx", `nginx/(\S+)`)},
		{"wrk", toolVersion(ctx, "wrk", `wrk (\S+)`)},
		{"redis", toolVersion(ctx, "redis-server", `v=(\S+)`)},
		{"limiters", peerVersions()},
	} {
		fmt.Fprintf(&text, "- %s: %s\n", fact[0], fact[1])
	}
	return text.String(), nil
}

// peerVersions are the other limiters' modules.
func peerVersions() string {
	var all []string
	for _, path := range []string{
		"golang.org/x/time", "go.uber.org/ratelimit", "github.com/throttled/throttled/v2",
		"github.com/sethvargo/go-limiter", "github.com/mennanov/limiters",
		"github.com/RussellLuo/slidingwindow",
	} {
		all = append(all, path+" "+moduleVersion(path))
	}
	return strings.Join(all, ", ")
}

func rounds(b *bench) string {
	if b.quick {
		return "1, a quick one: these figures show that the benchmark works and no more"
	}
	return fmt.Sprint(b.rounds)
}

// match returns what the pattern's group matches in a file.
func match(file, pattern string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return "unknown"
	}
	return group(text, pattern)
}

func group(text []byte, pattern string) string {
	found := regexp.MustCompile(pattern).FindSubmatch(text)
	if found == nil {
		return "unknown"
	}
	return string(found[1])
}

// toolVersion asks a program for its version. Some end with an error after telling it.
func toolVersion(ctx context.Context, name, pattern string) string {
	text, _ := exec.CommandContext(ctx, name, "-v").CombinedOutput()
	return group(text, pattern)
}

// moduleVersion returns the version of a module that this program is built with.
func moduleVersion(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, m := range info.Deps {
		if m.Path == path {
			return m.Version
		}
	}
	return "unknown"
}
