package grpc

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// A parent that refuses thousands of new resources, because it has as many as it may, is not asked for each
// of them again and again while the leases on others run out.
func TestManyRefusalsKeepNobodyWaiting(t *testing.T) {
	t.Parallel()
	var good atomic.Int64 // answers
	parent := &fakeParent{answer: func(q *doormanpb.GetServerCapacityRequest) (
		*doormanpb.GetServerCapacityResponse, error,
	) {
		for _, r := range q.GetResource() {
			if strings.HasPrefix(r.GetResourceId(), "odd") {
				return nil, status.Error(codes.ResourceExhausted, "resource is new")
			}
		}
		good.Add(1)
		return generous(q)
	}}
	child := start(t, Config{Name: "child", Parents: []string{parent.listen(t)}})
	child.getsSoon(t, "a", "good", ofWanted{5, 5})
	many := &doormanpb.GetCapacityRequest{ClientId: new("a")}
	for i := range 2000 {
		many.Resource = append(many.Resource, &doormanpb.ResourceRequest{
			ResourceId: new("odd" + strconv.Itoa(i)), Priority: proto.Int64(0), Wants: proto.Float64(1),
		})
	}
	if _, err := child.client.GetCapacity(in(t), many); err != nil {
		t.Fatal(err)
	}
	before, answered := parent.count(), good.Load()
	eventually(t, func() bool { return parent.count() > before })
	eventually(t, func() bool { return good.Load() >= answered+2 }) // a second each
	rounds := int(good.Load()-answered) + 3
	if got := parent.count() - before; got > rounds*maxSplits {
		t.Errorf("the parent was asked %d times meanwhile, want %d at most", got, rounds*maxSplits)
	}
}

// A parent's clock may be off by any time: how long its leases hold is told by the same clock.
func TestParentsClockIsOff(t *testing.T) {
	t.Parallel()
	for _, off := range []time.Duration{-time.Hour, time.Hour} {
		t.Run(off.String(), func(t *testing.T) {
			t.Parallel()
			now := func() time.Time { return time.Now().Add(off) }
			root := start(t, Config{Now: now}, shared(capacity.FairShare, 120, quick))
			child := start(t, Config{Name: "child", Parents: []string{root.address}})
			child.getsSoon(t, "a", "r", ofWanted{120, 1000})
			child.mu.Lock()
			found, _ := child.core.Find(child.now(), "r")
			child.mu.Unlock()
			length := found.Template.Algorithm.LeaseLength
			left := time.Until(found.ParentExpiry)
			if left < length/2 || left > length {
				t.Errorf("the parent's lease holds for %v, want about %v", left, length)
			}
		})
	}
}

// A child that speaks to a parent without that says when it was asked.
func TestClockOfAParentThatDoesNotSay(t *testing.T) {
	t.Parallel()
	for _, header := range []map[string][]string{nil, {doormanpb.TimeHeader: {"soon"}}} {
		if got := clockAhead(header, time.Now()); got != 0 {
			t.Errorf("clockAhead(%v) = %v, want 0", header, got)
		}
	}
	asked := time.Now()
	ms := strconv.FormatInt(asked.Add(time.Minute).UnixMilli(), 10)
	header := map[string][]string{doormanpb.TimeHeader: {ms}}
	if got := clockAhead(header, asked).Round(10 * time.Millisecond); got != time.Minute {
		t.Errorf("clockAhead(%v) = %v, want 1m", header, got)
	}
}

// A parent that is silent when thousands of resources are given back does not hold up what is asked for.
func TestGivingBackHoldsUpNoQuestion(t *testing.T) {
	t.Parallel()
	released := make(chan struct{}, 100)
	parent := &fakeParent{answer: generous, release: func(ctx context.Context) {
		released <- struct{}{}
		<-ctx.Done()
	}}
	child := start(t, Config{Name: "child", Parents: []string{parent.listen(t)}})
	many := &doormanpb.GetCapacityRequest{ClientId: new("a")}
	names := &doormanpb.ReleaseCapacityRequest{ClientId: new("a")}
	for i := range 10 * batchResources {
		name := "r" + strconv.Itoa(i)
		names.ResourceId = append(names.ResourceId, name)
		many.Resource = append(many.Resource, &doormanpb.ResourceRequest{
			ResourceId: &name, Priority: proto.Int64(0), Wants: proto.Float64(1),
		})
	}
	if _, err := child.client.GetCapacity(in(t), many); err != nil {
		t.Fatal(err)
	}
	child.getsSoon(t, "a", "r0", ofWanted{1, 1})
	if _, err := child.client.ReleaseCapacity(in(t), names); err != nil {
		t.Fatal(err)
	}
	<-released
	began := time.Now()
	child.getsSoon(t, "a", "new", ofWanted{1, 1})
	if took := time.Since(began); took > 5*parentTimeout {
		t.Errorf("a new resource was had after %v, want %v at most", took, 5*parentTimeout)
	}
}
