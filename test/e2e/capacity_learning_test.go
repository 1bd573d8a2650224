package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// A server that learns says so, and for how long: 0 would look like a fault otherwise.
func TestLearningIsTold(t *testing.T) {
	t.Parallel()
	templates := writeTemplates(t, strings.ReplaceAll(shares, ", learning_mode_duration: 0}", "}"))
	s := startCapacity(t, "--grpc", "localhost:0", "--capacity-config", templates)
	var one struct {
		Capacity float64
		Learning int64 `json:"learning_seconds"`
	}
	get := []string{"capacity", "get", "database", "10", "--server", s.grpcAddress(t)}
	status, out, said := gatehouse(t, nil, append(get, "--json")...)
	if err := json.Unmarshal([]byte(out), &one); err != nil || status != 0 || one.Capacity != 0 ||
		one.Learning < 300 || one.Learning > 600 {
		t.Errorf("get ended with %d, wrote %s, %s, want 0, learning for ten minutes", status, out, said)
	}
	_, out, _ = gatehouse(t, nil, get...)
	if !matches("CLIENT…The server started lately and is learning …m…s…\n", out) {
		t.Errorf("get wrote\n%s, want that the server learns", out)
	}
	c := s.dial(t)
	body := `{"client_id":"a","resource":[{"resource_id":"database","wants":10}]}`
	c.send(rawRequest("POST /v1/capacity/get", fmt.Sprintf("Content-Length: %d", len(body))) + body)
	if a := c.answer(); !a.is(`200 …"capacity":0},"safe_capacity":…,"learning_seconds":…`) {
		t.Errorf("over HTTP the answer is %s, want learning_seconds", a)
	}
}
