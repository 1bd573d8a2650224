package grpc

import (
	"context"
	"strconv"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
)

// capacityRequest is the question to a parent. What is more than any server takes is cut to that.
func capacityRequest(name string, asks []capacity.Request) *doormanpb.GetServerCapacityRequest {
	message := &doormanpb.GetServerCapacityRequest{ServerId: &name}
	for i := range asks {
		ask := &asks[i]
		entry := &doormanpb.ServerCapacityResourceRequest{ResourceId: &ask.Resource}
		if !ask.Has.Expiry.IsZero() {
			entry.Has = &doormanpb.Lease{
				ExpiryTime:      new(ask.Has.Expiry.Unix()),
				RefreshInterval: new(int64(ask.Has.Refresh / time.Second)),
				Capacity:        new(sanitizeHas(ask.Has.Capacity)),
			}
		}
		for _, d := range ask.Demands {
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

// grantsOf are the answers of a parent whose clock is ahead by so much.
func grantsOf(message *doormanpb.GetServerCapacityResponse, ahead time.Duration) []capacity.Grant {
	answers := make([]capacity.Grant, 0, len(message.GetResponse()))
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
			Safe:  entry.GetSafeCapacity(), SafeConfigured: entry.SafeCapacity != nil,
		}
		if block := entry.GetAlgorithm(); block != nil {
			answer.Algorithm = parentAlgorithm(block)
		}
		answers = append(answers, answer)
	}
	return answers
}

// parentAlgorithm is an algorithm as a parent has it. One that it has and this server does not know shares as
// FAIR_SHARE does, which gives nobody more than there is.
func parentAlgorithm(block *doormanpb.Algorithm) *capacity.Algorithm {
	algorithm := &capacity.Algorithm{
		Kind:            capacity.FairShare,
		LeaseLength:     forSeconds(block.GetLeaseLength()),
		RefreshInterval: forSeconds(block.GetRefreshInterval()),
	}
	if kind := block.GetKind(); kind >= 0 && kind <= doormanpb.Algorithm_FAIR_SHARE {
		algorithm.Kind = capacity.Kind(kind)
	}
	if block.LearningModeDuration != nil {
		learning := forSeconds(block.GetLearningModeDuration())
		algorithm.Learning = &learning
	}
	for _, p := range block.GetParameters() {
		algorithm.Parameters = append(algorithm.Parameters,
			capacity.Parameter{Name: p.GetName(), Value: p.GetValue()})
	}
	return algorithm
}

// requestTime has a parent say what time it is there, with its answer.
func requestTime(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, timeHeader, "?")
}

// clockAhead is how far ahead a parent's clock is, which was asked at an instant. It may have looked at it
// later, so a lease seems a little shorter than it is, and never longer. 0 is what a parent has that does
// not say; doorman's does not.
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
