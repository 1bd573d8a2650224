package e2e

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A family is a metric as a server shows it.
type family struct {
	kind   string // counter, gauge, histogram or summary
	help   bool
	labels map[string]bool
}

// families reads what /metrics shows. The series of a histogram go by names of their own.
func families(page string) map[string]*family {
	all := make(map[string]*family)
	of := func(name string) *family {
		if all[name] == nil {
			all[name] = &family{labels: make(map[string]bool)}
		}
		return all[name]
	}
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		words := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "# TYPE "):
			of(words[2]).kind = words[3]
		case strings.HasPrefix(line, "# HELP "):
			of(words[2]).help = len(words) > 3
		case line != "":
			name, _, _ := strings.Cut(words[0], "{")
			for _, label := range labelPattern.FindAllStringSubmatch(line[len(name):], -1) {
				of(name).labels[label[1]] = true
			}
			of(name)
		}
	}
	return all
}

var labelPattern = regexp.MustCompile(`([a-z_]+)="(?:[^"\\]|\\.)*"`)

// tokenPattern takes an expression of PromQL apart.
var tokenPattern = regexp.MustCompile(
	`[a-zA-Z_:][a-zA-Z0-9_:]*|"(?:[^"\\]|\\.)*"|\[[^\]]*\]|[0-9.]+|[=!]~|[=!<>]=|[-+*/<>=(){},]|\S`)

// Words of PromQL that expressions of ours may use.
var (
	promFunctions    = []string{"rate", "increase", "abs", "histogram_quantile"}
	promAggregations = []string{"sum", "max", "min", "avg", "count"}
	promOperators    = []string{"and", "or", "unless"}
	promSigns        = []string{"+", "-", "*", "/", "<", ">", "!=", "==", "<=", ">="}
	promRange        = regexp.MustCompile(`^\[(?:\d+[smh]|\$__rate_interval)\]$`)
)

// targetLabels are put on by Prometheus.
var targetLabels = []string{"job", "instance"}

// An expression is what is read of PromQL: the metrics it uses, and labels.
type expression struct {
	tokens []string
	shown  map[string]*family

	metrics []string // used so far
	labels  []string // grouped by, to be found at one of the metrics
	faults  []string
}

func (e *expression) fault(format string, args ...any) {
	e.faults = append(e.faults, fmt.Sprintf(format, args...))
}

// next takes the next token off, "" at the end.
func (e *expression) next() string {
	if len(e.tokens) == 0 {
		return ""
	}
	token := e.tokens[0]
	e.tokens = e.tokens[1:]
	return token
}

// is takes the next token off if it is this one.
func (e *expression) is(token string) bool {
	if len(e.tokens) > 0 && e.tokens[0] == token {
		e.tokens = e.tokens[1:]
		return true
	}
	return false
}

// checkPromQL says what is wrong with an expression for a server that shows these metrics: metrics and labels
// there are none of, a rate of what is no counter, words that are no PromQL.
func checkPromQL(text string, shown map[string]*family) (faults []string) {
	e := &expression{tokens: tokenPattern.FindAllString(text, -1), shown: shown}
	e.terms("")
	for _, label := range e.labels {
		if !slices.ContainsFunc(e.metrics, func(name string) bool { return e.has(name, label) }) {
			e.fault("no metric of %s has the label %s", e.metrics, label)
		}
	}
	if len(e.metrics) == 0 {
		e.fault("there is no metric in it")
	}
	return e.faults
}

func (e *expression) has(metric, label string) bool {
	known := e.shown[metric]
	return slices.Contains(targetLabels, label) || known != nil && known.labels[label]
}

// terms reads terms with operators between them, up to a closing token.
func (e *expression) terms(end string) {
	for e.term(); ; e.term() {
		switch token := e.next(); {
		case token == end:
			return
		case token == "":
			e.fault("it ends without %s", end)
			return
		case token == "," && end == ")":
		case !slices.Contains(promOperators, token) && !slices.Contains(promSigns, token):
			e.fault("%q stands where an operator should", token)
			return
		}
	}
}

// term reads one operand.
func (e *expression) term() {
	token := e.next()
	first := rune(0)
	if token != "" {
		first = rune(token[0])
	}
	switch {
	case first >= '0' && first <= '9':
	case token == "(":
		e.terms(")")
	case slices.Contains(promFunctions, token) && e.is("("):
		e.call(token)
	case slices.Contains(promAggregations, token):
		if e.is("by") {
			e.grouped()
		}
		if !e.is("(") {
			e.fault("%s has no argument", token)
			return
		}
		e.terms(")")
	case first == '_' || first >= 'a' && first <= 'z':
		e.selector(token, "")
	default:
		e.fault("%q stands where a metric should", token)
	}
}

// call reads the arguments of a function.
func (e *expression) call(name string) {
	if name == "rate" || name == "increase" {
		e.selector(e.next(), "counter")
		if !e.is(")") {
			e.fault("%s has more than one argument", name)
		}
		return
	}
	e.terms(")")
	last := ""
	if len(e.metrics) > 0 {
		last = e.metrics[len(e.metrics)-1]
	}
	buckets := strings.HasSuffix(last, "_bucket") && slices.Contains(e.labels, "le")
	if name == "histogram_quantile" && !buckets {
		e.fault("histogram_quantile of %s, want buckets by le", last)
	}
}

// grouped reads labels in parentheses.
func (e *expression) grouped() {
	if !e.is("(") {
		e.fault("by has no labels")
	}
	for token := e.next(); token != ")" && token != ""; token = e.next() {
		if token != "," {
			e.labels = append(e.labels, token)
		}
	}
}

// selector reads what follows the name of a metric, which must be a counter if one is wanted.
func (e *expression) selector(metric, want string) {
	e.metrics = append(e.metrics, metric)
	known := e.shown[metric]
	if known == nil && metric != "up" { // which Prometheus makes
		e.fault("the server shows no metric %s", metric)
	}
	if e.is("{") {
		for token := e.next(); token != "}"; token = e.next() {
			if token == "" {
				e.fault("the labels of %s do not end", metric)
				return
			}
			operator, value := e.next(), e.next()
			if !slices.Contains([]string{"=", "=~", "!=", "!~"}, operator) || !strings.HasPrefix(value, `"`) {
				e.fault("%s{%s%s%s} is no matcher", metric, token, operator, value)
			}
			if !e.has(metric, token) {
				e.fault("%s has no label %s", metric, token)
			}
			_ = e.is(",")
		}
	}
	isRange := len(e.tokens) > 0 && promRange.MatchString(e.tokens[0])
	if isRange {
		e.next()
	}
	counts := known != nil && (known.kind == "counter" || strings.HasSuffix(metric, "_bucket"))
	if isRange != (want == "counter") || isRange && !counts {
		e.fault("%s is used over a range %t, is a counter %t, want both or none", metric, isRange, counts)
	}
}

func TestCheckPromQL(t *testing.T) {
	shown := families(`# HELP a_total Something.
# TYPE a_total counter
a_total{kind="x",op="y \" z=\"1\""} 1
# TYPE g gauge
g 3
# TYPE h histogram
h_bucket{kind="x",le="1"} 4
h_sum{kind="x"} 4
`)
	for text, want := range map[string]string{
		`g > 0.9 * 500000`: "",
		`sum by (kind) (rate(a_total{op=~"y|z",job="j"}[5m])) / sum(g) >= 2`: "",
		`histogram_quantile(0.9, sum by (le, kind) (rate(h_bucket[5m])))`:    "",
		`abs(g) != 1 and up == 0`:   "",
		`b`:                         "no metric b",
		`a_total{oops="x"}`:         "no label oops",
		`a_total{z="1"}`:            "no label z",
		`sum by (instance, op) (g)`: "has the label op",
		`rate(g[5m])`:               "want both or none",
		`rate(a_total)`:             "want both or none",
		`g[5m]`:                     "want both or none",
		`sum(g`:                     "ends without )",
		`g g`:                       "where an operator should",
		`g >`:                       "where a metric should",
		`rat(g)`:                    "no metric rat",
		`a_total{kind"x"}`:          "is no matcher",
		`histogram_quantile(0.9, rate(h_bucket[5m]))`: "want buckets by le",
		`1 > 0`: "there is no metric",
	} {
		got := strings.Join(checkPromQL(text, shown), "; ")
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
