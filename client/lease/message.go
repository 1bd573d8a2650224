package lease

import (
	"math"
	"strconv"
	"time"

	lease "github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"google.golang.org/grpc/metadata"
)

// requestMessage is one message for all requests. What the protocol requires is set, also when it is 0.
func requestMessage(client string, requests []lease.Request) *doormanpb.GetCapacityRequest {
	message := &doormanpb.GetCapacityRequest{
		ClientId: &client, Resource: make([]*doormanpb.ResourceRequest, len(requests)),
	}
	for i := range requests {
		r := &requests[i]
		entry := &doormanpb.ResourceRequest{
			ResourceId: &r.Resource, Priority: &r.Demands[0].Priority, Wants: &r.Demands[0].Wants,
		}
		if !r.Has.Expiry.IsZero() {
			expiry, refresh := r.Has.Expiry.Unix(), int64(r.Has.Refresh/time.Second)
			entry.Has = &doormanpb.Lease{
				ExpiryTime: &expiry, RefreshInterval: &refresh, Capacity: &r.Has.Capacity,
			}
		}
		message.Resource[i] = entry
	}
	return message
}

// grantsOf are the grants of an answer. One without a lease is left out, so that the one before holds.
func grantsOf(response *doormanpb.GetCapacityResponse) []lease.Grant {
	grants := make([]lease.Grant, 0, len(response.GetResponse()))
	for _, r := range response.GetResponse() {
		gets := r.GetGets()
		if gets == nil {
			continue
		}
		g := lease.Grant{
			Resource: r.GetResourceId(),
			Lease: lease.Lease{
				Expiry:   time.Unix(clampSeconds(gets.GetExpiryTime()), 0),
				Refresh:  time.Duration(min(clampSeconds(gets.GetRefreshInterval()), maxRefresh)) * time.Second,
				Capacity: gets.GetCapacity(),
			},
			Safe: math.NaN(), // not said
		}
		if r.SafeCapacity != nil {
			g.Safe = r.GetSafeCapacity()
		}
		grants = append(grants, g)
	}
	return grants
}

// Bounds of what is read from the wire, so that no sum of times overflows.
const (
	maxSeconds = 1 << 36 // some 2,000 years
	maxRefresh = 366 * 24 * 60 * 60
)

func clampSeconds(s int64) int64 { return max(0, min(s, maxSeconds)) }

// clockOf is the time by the server's clock, or so much later; the zero time if it did not say.
func clockOf(header metadata.MD, later time.Duration) time.Time {
	if text := header.Get(clockHeader); len(text) == 1 {
		if ms, err := strconv.ParseInt(text[0], 10, 64); err == nil && ms > 0 && ms < maxSeconds*1000 {
			return time.UnixMilli(ms).Add(later)
		}
	}
	return time.Time{}
}
