package redis

import (
	"context"
	"fmt"
	"strings"

	"github.com/gatehousehq/gatehouse/store/cas"
)

// NoEviction is the policy by which Redis throws no records away when its memory is full.
const NoEviction = "noeviction"

// errNoPolicy is an answer that stays the same when Redis is asked again, as an error that it answers does.
var errNoPolicy = fmt.Errorf("redis: %w: INFO memory does not tell a maxmemory_policy", cas.ErrRefused)

// EvictionPolicy asks what Redis does when its memory is full: the setting maxmemory-policy. Of several
// nodes it is that of one that does not say noeviction, if there is one. An error says that it is not known,
// as when the user may not ask for INFO.
func (b *Backend) EvictionPolicy(ctx context.Context) (policy string, err error) {
	l, err := b.currentLink(ctx)
	if err != nil {
		return "", err
	}
	for _, node := range l.client.Nodes() {
		info, err := node.Do(ctx, node.B().Info().Section("memory").Build()).ToString()
		if err != nil {
			return "", b.address.classifyError(err)
		}
		policy = policyOf(info)
		if policy == "" {
			return "", errNoPolicy
		}
		// One node that evicts is enough to lose records.
		if policy != NoEviction {
			return policy, nil
		}
	}
	return policy, nil
}

// policyOf finds the policy in the lines of INFO.
func policyOf(info string) string {
	for line := range strings.Lines(info) {
		if policy, ok := strings.CutPrefix(line, "maxmemory_policy:"); ok {
			return strings.TrimSpace(policy)
		}
	}
	return ""
}
