package doors

import (
	"strings"
	"testing"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/client"
	"github.com/gatehousehq/gatehouse/internal/params"
)

// A clientDoor asks by the Go calls of a client.
type clientDoor struct {
	t      *testing.T
	client *client.Client
}

func newClientDoor(t *testing.T, address string) *clientDoor {
	t.Helper()
	c, err := client.New(client.Config{Addresses: []string{address}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return &clientDoor{t, c}
}

func (c *clientDoor) name() string { return "client" }

func (c *clientDoor) ask(op *operation) (answer, error) {
	d, err := c.client.Do(c.t.Context(), op.key, op.cmd)
	switch gatehouse.CodeOf(err) {
	case gatehouse.CodeUnavailable, gatehouse.CodeTimeout:
		return answer{}, err
	}
	a := answerOf(op, d, err)
	told := op.key.Kind.Limiter() || params.HasHolders(op.key.Kind)
	for name := range a.figures {
		figure, _, _ := strings.Cut(name, " ")
		// Milliseconds are rounded, so that what redis-cell cuts off is not there. A kind without a size has
		// no times, and a refusal names the holders though the gate was not asked for them.
		switch {
		case strings.HasPrefix(figure, "cell_"),
			!told && (figure == "limit" || figure == "remaining" || strings.HasPrefix(figure, "retry_")),
			!op.key.Kind.Limiter() && strings.HasPrefix(figure, "reset_"),
			figure == "value" && op.cmd.Op != gatehouse.OpCount && op.cmd.Op != gatehouse.OpValue,
			figure == "message" && d.Outcome == gatehouse.Refused:
			delete(a.figures, name)
		}
	}
	return a, nil
}

func (c *clientDoor) list(kind gatehouse.Kind) ([]string, error) {
	return c.client.Names(c.t.Context(), kind, "", 1000)
}
