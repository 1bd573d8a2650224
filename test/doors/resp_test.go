package doors

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A respDoor asks over RESP2, on one connection.
type respDoor struct {
	conn net.Conn
	in   *bufio.Reader
}

func newRESPDoor(t *testing.T, address string) *respDoor {
	t.Helper()
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &respDoor{conn, bufio.NewReader(conn)}
}

func (r *respDoor) name() string { return "RESP" }

// A failure is an error that the server answered with.
type failure string

// Error implements error.
func (f failure) Error() string { return string(f) }

// do sends a command and returns its answer: an int64, a string, nil, a []any or a failure.
func (r *respDoor) do(args ...string) (any, error) {
	var command strings.Builder
	fmt.Fprintf(&command, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&command, "$%d\r\n%s\r\n", len(arg), arg)
	}
	if err := r.conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return nil, err
	}
	if _, err := io.WriteString(r.conn, command.String()); err != nil {
		return nil, err
	}
	return r.read()
}

// read reads one answer.
func (r *respDoor) read() (any, error) {
	line, err := r.in.ReadString('\n')
	if err != nil {
		return nil, err
	}
	kind, text := line[0], strings.TrimSuffix(line[1:], "\r\n")
	switch kind {
	case '+':
		return text, nil
	case '-':
		return failure(text), nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil:
		return nil, err
	case kind == ':':
		return n, nil
	case kind == '$' && n < 0:
		return nil, nil //nolint:nilnil // RESP has a null, and that is it
	case kind == '$':
		bulk := make([]byte, n+2)
		_, err := io.ReadFull(r.in, bulk)
		return string(bulk[:n]), err
	case kind != '*':
		return nil, fmt.Errorf("answer %q, want one of RESP2", line)
	}
	all := make([]any, n)
	for i := range all {
		if all[i], err = r.read(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// likeCell reports whether an operation can be said as redis-cell's CL.THROTTLE.
func likeCell(op *operation) bool {
	cmd := &op.cmd
	return op.brief && op.key.Kind == gatehouse.GCRA && cmd.Size > 0 && cmd.Cost <= cmd.Burst+1 &&
		cmd.Interval > 0 && cmd.Interval%time.Second == 0 &&
		(cmd.Op == gatehouse.OpAcquire && cmd.Cost > 0 || cmd.Op == gatehouse.OpPeek && cmd.Cost == 0)
}

func (r *respDoor) ask(op *operation) (answer, error) {
	if likeCell(op) {
		return r.askCell(op)
	}
	args := []string{"GH." + strings.ToUpper(op.cmd.Op.String()), op.key.String()}
	for _, p := range op.words() {
		args = append(args, strings.ToUpper(p.name), p.value)
	}
	details := !op.brief && op.cmd.Op != gatehouse.OpStats
	if details {
		args = append(args, "WITH", "DETAILS")
	}
	told, err := r.do(args...)
	if err != nil {
		return answer{}, err
	}
	a := answer{outcome: "granted", figures: map[string]string{}}
	if f, failed := told.(failure); failed {
		return a.failed(f)
	}
	if details || op.cmd.Op == gatehouse.OpPeek {
		return a.readDetails(told)
	}
	if told == nil {
		a.outcome = "refused"
		return a, nil
	}
	return a, a.readBrief(op, told)
}

// respOutcomes are what the codes of errors mean.
var respOutcomes = map[string]string{
	"CONFLICT": "conflict", "NOTFOUND": "missing", "INVALID": "invalid", "EXHAUSTED": "exhausted",
}

// failed reads an error.
func (a answer) failed(f failure) (answer, error) {
	code, text, _ := strings.Cut(string(f), " ")
	var known bool
	if a.outcome, known = respOutcomes[code]; !known {
		return a, f
	}
	a.set("text", text)
	return a, nil
}

// readBrief reads the short form of a grant.
func (a answer) readBrief(op *operation, told any) error {
	switch op.cmd.Op {
	case gatehouse.OpAcquire:
		if op.holds() {
			a.set("key", told)
			return nil
		}
	case gatehouse.OpWait:
		if op.key.Kind == gatehouse.Event {
			a.set("message", told)
			return nil
		}
	case gatehouse.OpCount, gatehouse.OpValue:
		a.set("value", told)
		return nil
	case gatehouse.OpDelay, gatehouse.OpReserve:
		a.set("delay_ms", told)
		return nil
	case gatehouse.OpStats:
		stats, err := pairs(told)
		for name, value := range stats {
			if value == nil {
				value = ""
			}
			a.set("stat "+name, value)
		}
		return err
	}
	if told != "OK" {
		return fmt.Errorf("answer %v, want OK", told)
	}
	return nil
}

// detailNames are the figures that have another name here.
var detailNames = map[string]string{
	"retry_after": "retry_ms", "reset_after": "reset_ms", "delay": "delay_ms",
	"expires_after": "expires_ms",
}

// readDetails reads the long form of a grant or a refusal.
func (a answer) readDetails(told any) (answer, error) {
	details, err := pairs(told)
	if err != nil {
		return a, err
	}
	if details["granted"] != int64(1) {
		a.outcome = "refused"
	}
	delete(details, "granted")
	windows, _ := details["windows"].([]any)
	delete(details, "windows")
	// Who holds and who waits is said where it is asked for, and Go is not asked here.
	delete(details, "detail")
	a.name(details, "")
	for _, window := range windows {
		details, err := pairs(window)
		if err != nil {
			return a, err
		}
		of := fmt.Sprint(" ", details["limit"])
		delete(details, "limit")
		a.name(details, of)
	}
	return a, nil
}

// name notes figures under the names they have here.
func (a answer) name(details map[string]any, of string) {
	for name, value := range details {
		if other := detailNames[name]; other != "" {
			name = other
		}
		a.set(name+of, value)
	}
}

// pairs makes a map of an array of names and values.
func pairs(of any) (map[string]any, error) {
	all, ok := of.([]any)
	if !ok || len(all)%2 != 0 {
		return nil, fmt.Errorf("answer %v, want names and values", of)
	}
	m := make(map[string]any, len(all)/2)
	for i := 0; i < len(all); i += 2 {
		m[fmt.Sprint(all[i])] = all[i+1]
	}
	return m, nil
}

// askCell says an operation as redis-cell's CL.THROTTLE.
func (r *respDoor) askCell(op *operation) (answer, error) {
	told, err := r.do("CL.THROTTLE", op.key.Name, fmt.Sprint(op.cmd.Burst), fmt.Sprint(op.cmd.Size),
		fmt.Sprint(int64(op.cmd.Interval/time.Second)), fmt.Sprint(op.cmd.Cost))
	if err != nil {
		return answer{}, err
	}
	a := answer{outcome: "granted", figures: map[string]string{}}
	if f, failed := told.(failure); failed {
		return a.failed(f)
	}
	all, ok := told.([]any)
	if !ok || len(all) != 5 {
		return a, fmt.Errorf("CL.THROTTLE = %v, want five numbers", told)
	}
	if all[0] != int64(0) {
		a.outcome = "refused"
	}
	for i, name := range []string{"limit", "remaining", "cell_retry", "cell_reset"} {
		a.set(name, all[i+1])
	}
	return a, nil
}

func (r *respDoor) list(kind gatehouse.Kind) ([]string, error) {
	told, err := r.do("GH.LIST", kind.String(), "MOST", "1000")
	if err != nil {
		return nil, err
	}
	all, ok := told.([]any)
	if !ok {
		return nil, fmt.Errorf("GH.LIST = %v, want names", told)
	}
	var names []string
	for _, name := range all {
		names = append(names, fmt.Sprint(name))
	}
	return names, nil
}
