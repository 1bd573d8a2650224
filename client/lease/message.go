package lease

import (
	"math"
	"strconv"
	"time"

	lease "github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"google.golang.org/grpc/metadata"
)

// requestMessage makes one message of all requests. Fields that the protocol requires are set even when they
// are 0.
func requestMessage(client string, requests []lease.Request) *doormanpb.GetCapacityRequest {
	message := &doormanpb.GetCapacityRequest{
		ClientId: &client, Resource: make([]*doormanpb.ResourceRequest, len(requests)),
	}
	for i := range requests {
		r := &requests[i]
		entry := &doormanpb.ResourceRequest{
			ResourceId: &r.Resource, Priority: &r.Demands[0].Priority, Wants: &r.Demands[0].Wants,
		}
		// A client that holds no lease leaves the field out; a lease of 0 would mean that it holds one of
		// nothing.
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

// grantsOf returns the grants of a reply. One without a lease is left out, so that the lease before it stays
// in force.
func grantsOf(response *doormanpb.GetCapacityResponse) []lease.Grant {
	grants := make([]lease.Grant, 0, len(response.GetResponse()))
	for _, r := range response.GetResponse() {
		gets := r.GetGets()
		if gets == nil {
			continue
		}
		refresh := min(clampSeconds(gets.GetRefreshInterval()), maxRefresh)
		g := lease.Grant{
			Resource: r.GetResourceId(),
			Lease: lease.Lease{
				Expiry:   time.Unix(clampSeconds(gets.GetExpiryTime()), 0),
				Refresh:  time.Duration(refresh) * time.Second,
				Capacity: gets.GetCapacity(),
			},
			Safe: math.NaN(), // means: the server did not say
		}
		// An explicit 0 is an amount: nothing may be used without a lease.
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

// clockOf returns what the server's clock showed in its reply, moved by later; the zero time if the server
// did not say.
func clockOf(header metadata.MD, later time.Duration) time.Time {
	if text := header.Get(clockHeader); len(text) == 1 {
		if ms, err := strconv.ParseInt(text[0], 10, 64); err == nil && ms > 0 && ms < maxSeconds*1000 {
			return time.UnixMilli(ms).Add(later)
		}
	}
	return time.Time{}
}
