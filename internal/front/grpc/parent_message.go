package grpc

import (
	"context"
	"strconv"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
)

// capacityRequest makes the message to a parent. Numbers above what any server accepts are cut to that.
func capacityRequest(name string, asks []capacity.Request) *doormanpb.GetServerCapacityRequest {
	message := &doormanpb.GetServerCapacityRequest{ServerId: &name}
	for i := range asks {
		ask := &asks[i]
		// A server without a lease leaves Has out; a lease of 0 would mean that it holds one of nothing.
		entry := &doormanpb.ServerCapacityResourceRequest{ResourceId: &ask.Resource}
		if !ask.Has.Expiry.IsZero() {
			entry.Has = &doormanpb.Lease{
				ExpiryTime:      new(ask.Has.Expiry.Unix()),
				RefreshInterval: new(int64(ask.Has.Refresh / time.Second)),
				Capacity:        new(sanitizeHas(ask.Has.Capacity)),
			}
		}
		for _, d := range ask.Demands {
			// A sum over many clients may exceed what one request may ask for, and would be refused.
			entry.Wants = append(entry.Wants, &doormanpb.PriorityBandAggregate{
				Priority:   new(d.Priority),
				NumClients: new(min(d.Clients, maxClients)),
				Wants:      new(min(d.Wants, maxAmount)),
			})
		}
		message.Resource = append(message.Resource, entry)
	}
	return message
}

// grantsOf returns the grants of a parent whose clock is ahead by that much.
func grantsOf(message *doormanpb.GetServerCapacityResponse, ahead time.Duration) []capacity.Grant {
	answers := make([]capacity.Grant, 0, len(message.GetResponse()))
	// A resource without a lease becomes a grant of nothing that has ended: gets is nil, and its getters
	// return zeros.
	for _, entry := range message.GetResponse() {
		gets := entry.GetGets()
		answer := capacity.Grant{
			Resource: entry.GetResourceId(),
			Lease: capacity.Lease{
				Expiry:   atSecond(gets.GetExpiryTime()),
				Refresh:  forSeconds(gets.GetRefreshInterval()),
				Capacity: gets.GetCapacity(),
			},
			Ahead: ahead,
			// An explicit 0 differs from a field that is not there.
			Safe: entry.GetSafeCapacity(), SafeConfigured: entry.SafeCapacity != nil,
		}
		if block := entry.GetAlgorithm(); block != nil {
			answer.Algorithm = parentAlgorithm(block)
		}
		answers = append(answers, answer)
	}
	return answers
}

// parentAlgorithm returns the algorithm that a parent uses for a resource. One that this server does not
// know is treated as FAIR_SHARE, which never grants more than there is.
func parentAlgorithm(block *doormanpb.Algorithm) *capacity.Algorithm {
	algorithm := &capacity.Algorithm{
		Kind:            capacity.FairShare,
		LeaseLength:     forSeconds(block.GetLeaseLength()),
		RefreshInterval: forSeconds(block.GetRefreshInterval()),
	}
	// The numbers of the kinds are the protocol's, so those that both know need no table.
	if kind := block.GetKind(); kind >= 0 && kind <= doormanpb.Algorithm_FAIR_SHARE {
		algorithm.Kind = capacity.AlgorithmKind(kind)
	}
	if block.LearningModeDuration != nil {
		learning := forSeconds(block.GetLearningModeDuration())
		algorithm.Learning = &learning
	}
	for _, p := range block.GetParameters() {
		algorithm.Parameters = append(algorithm.Parameters,
			capacity.AlgorithmParameter{Name: p.GetName(), Value: p.GetValue()})
	}
	return algorithm
}

// requestTime asks a parent for the time it has, with its answer.
func requestTime(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, timeHeader, "?")
}

// clockAhead returns how far ahead a parent's clock is, for a call that began at asked. The parent may have
// read it later, so a lease seems a little shorter than it is, and never longer. It is 0 for a parent that
// does not say the time, as doorman's does not.
func clockAhead(header metadata.MD, asked time.Time) time.Duration {
	said := header.Get(timeHeader)
	if len(said) == 0 {
		return 0
	}
	ms, err := strconv.ParseInt(said[0], 10, 64)
	if err != nil {
		return 0
	}
	return time.UnixMilli(ms).Sub(asked)
}
