package cas

import (
	"context"
	"sync"
	"time"
)

// budgets hands out the time that a transaction may take. Making a context for each costs a third of what a
// transaction allocates, so those that begin within a grain share one.
type budgets struct {
	mu      sync.Mutex
	present context.Context
	cancel  context.CancelFunc // of the present one; time ends it, as it ended those before
	until   int64              // when the next one is made, by the clock's monotonic time
}

// budgetGrain is how much earlier than after its whole time a transaction may have to end.
const budgetGrain = 5 * time.Millisecond

// currentBudget returns a context that ends within timeout.
func (b *budgets) currentBudget(now int64, timeout time.Duration) context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.present == nil || now >= b.until {
		b.present, b.cancel = context.WithTimeout(context.Background(), timeout)
		b.until = now + int64(min(budgetGrain, timeout/10))
	}
	return b.present
}

// close ends the present one.
func (b *budgets) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cancel != nil {
		b.cancel()
	}
}
