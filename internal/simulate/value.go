package simulate

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// readValue returns a function that reads one value with parse, whose error says what was wanted.
func readValue[T any](r *scenarioReader, to *T, parse func(string) (T, error)) func(*yaml.Node) {
	return func(node *yaml.Node) {
		if node.Kind != yaml.ScalarNode || node.ShortTag() == "!!null" {
			r.addFault(node, "%s here, want one value", describe(node))
			return
		}
		v, err := parse(node.Value)
		if err != nil {
			r.addFault(node, "%v", err)
			return
		}
		*to = v
	}
}

// valueIf returns a value if it is ok, and else the error that format and args make.
func valueIf[T any](ok bool, value T, format string, args ...any) (T, error) {
	if ok {
		return value, nil
	}
	var none T
	return none, fmt.Errorf(format, args...)
}

func parseText(text string) (string, error) {
	return valueIf(text != "" && len(text) <= 200, text, "a text of %d bytes, want 1 to 200", len(text))
}

func parseTime(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	return valueIf(err == nil && d >= 0 && d <= MaxDuration, d,
		"%q is no time, want one such as 90s or 1h, at most %v", text, MaxDuration)
}

// parsePositiveTime requires at least a millisecond, because something is repeated that often.
func parsePositiveTime(text string) (time.Duration, error) {
	d, err := parseTime(text)
	if err == nil && d < time.Millisecond {
		err = fmt.Errorf("%q is too short, want at least 1ms", text)
	}
	return d, err
}

// parseSpan parses "5s", or "5s to 10s".
func parseSpan(text string) (timeRange, error) {
	low, high, two := strings.Cut(text, " to ")
	least, err := parseTime(low)
	if err != nil {
		return timeRange{}, err
	}
	if !two {
		return timeRange{least, least}, nil
	}
	most, err := parseTime(high)
	if err != nil {
		return timeRange{}, err
	}
	return valueIf(least <= most, timeRange{least, most},
		"%q ends before it begins, want the lesser time first", text)
}

func parseNumber(text string) (float64, error) {
	n, err := strconv.ParseFloat(text, 64)
	ok := err == nil && n >= 0 && n <= 1e15 // not a number is neither
	return valueIf(ok, n, "%q is no amount, want a number from 0 to 1e15", text)
}

// parseSafe also takes -1, which means no limit.
func parseSafe(text string) (float64, error) {
	if text == "-1" {
		return -1, nil
	}
	return parseNumber(text)
}

// parseShare parses a percentage: 5% is 0.05.
func parseShare(text string) (float64, error) {
	number, percent := strings.CutSuffix(text, "%")
	n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	return valueIf(err == nil && percent && n >= 0 && n <= 1000, n/100,
		"%q is no share, want a percentage such as 5%%", text)
}

// parseChance parses a share of at most 100%.
func parseChance(text string) (float64, error) {
	share, err := parseShare(text)
	if err == nil && share > 1 {
		err = fmt.Errorf("%q is more than all, want 0%% to 100%%", text)
	}
	return share, err
}

// parseCount returns a parser for a whole number from 1 to most.
func parseCount(most int) func(string) (int, error) {
	return func(text string) (int, error) {
		n, err := strconv.Atoi(text)
		ok := err == nil && n >= 1 && n <= most
		return valueIf(ok, n, "%q is no number of things, want 1 to %d", text, most)
	}
}

// parseAmount parses 12 clients, or 10% of them.
func parseAmount(text string) (clientSelection, error) {
	if share, err := parseChance(text); err == nil {
		return clientSelection{share: share}, nil
	}
	count, err := parseCount(MaxClients)(text)
	return valueIf(err == nil, clientSelection{count: count},
		"%q is no number of clients, want such as 2 or 10%%", text)
}

// parseSeconds returns a parser for whole seconds, the unit of the protocol.
func parseSeconds(least int) func(string) (time.Duration, error) {
	return func(text string) (time.Duration, error) {
		n, err := strconv.Atoi(text)
		d, ok := time.Duration(n)*time.Second, err == nil && n >= least && n <= int(MaxDuration/time.Second)
		return valueIf(ok, d, "%q are no seconds, want a whole number from %d", text, least)
	}
}

func parsePriority(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	return valueIf(err == nil, n, "%q is no priority, want a whole number", text)
}

func parseBool(text string) (bool, error) {
	return valueIf(text == "true" || text == "false", text == "true", "%q is neither true nor false", text)
}
