package http

import (
	"errors"
	"testing"
)

// A new policy that comes when the answer is on its way changes nothing: what was granted is not taken back,
// so the answer must not say that it was refused.
func TestDeniedTooLate(t *testing.T) {
	w := &waiter{user: new(waiterUser), finished: true}
	w.deny(errors.New("denied"))
	if err := w.deniedOr(nil); err != nil {
		t.Errorf("the answer is %v, want the decision", err)
	}
}
