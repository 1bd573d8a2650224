package grpc

import (
	"encoding/hex"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"google.golang.org/protobuf/proto"
)

// Whatever bytes come as a request: they are read as the generated code reads them; what is refused is
// refused for a reason; and nothing that is decided is no number, below nothing or above what was wanted.
func FuzzGetCapacity(f *testing.F) {
	for _, c := range refusals() {
		if len(c.message) < 1000 {
			f.Add(c.message)
		}
	}
	nan := want("r", math.NaN())
	nan.Has = &doormanpb.Lease{
		ExpiryTime: new(int64(1 << 40)), RefreshInterval: new(int64(1)), Capacity: new(float64(-3)),
	}
	f.Add(asked("x", want("r", 3), want("a/b", 1e15), nan))
	for _, text := range []string{
		"0a0178120e0a01721000210000000000000840",
		"0a0178" + "0b0c" + "1b13141c" + "250000000021" + "0000000000000000",
		"0a017812120a01721000210000000000000840" + "1a021a00",
	} {
		message, err := hex.DecodeString(text)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(message)
	}
	config := Config{Limits: capacity.Limits{Resources: 50, Leases: 50}}
	s := start(f, config, shared(capacity.FairShare, 100))
	f.Fuzz(func(t *testing.T, message []byte) {
		c := s.newCall()
		defer s.freeCall(c)
		c.fault = c.readGet(message)
		agree(t, message, c)
		to, err := s.answerCall(overGRPC, rpcGetCapacity, c)
		code := gatehouse.CodeOf(err)
		if err != nil && code != gatehouse.CodeInvalid && code != gatehouse.CodeExhausted {
			t.Fatalf("%x = %v, want an answer or a refusal", message, err)
		}
		if err == nil {
			sane(t, c, to)
		}
		for _, status := range s.all() {
			right := status.Has >= 0 && status.Has <= 100 && status.Wants >= 0 && status.Wants < 1e18
			if !right {
				t.Fatalf("after %x there is %+v, want sums of what makes sense", message, status)
			}
		}
	})
}

// agree compares what was read with what the generated code makes of it.
func agree(t *testing.T, message []byte, c *capacityCall) {
	t.Helper()
	var want doormanpb.GetCapacityRequest
	err := proto.UnmarshalOptions{AllowPartial: true}.Unmarshal(message, &want)
	if err != nil && c.fault == nil {
		t.Fatalf("%x is read without a fault, want %v", message, err)
	}
	whole := proto.CheckInitialized(&want) == nil
	if err != nil || c.fault != nil {
		if err == nil && whole && len(want.GetResource()) <= maxEntries {
			t.Fatalf("%x = %v, want %v", message, c.fault, &want)
		}
		return
	}
	if !whole || c.client != want.GetClientId() || len(c.requests) != len(want.GetResource()) {
		t.Fatalf("%x = %+v, want %v", message, c, &want)
	}
	for i, r := range want.GetResource() {
		got := c.requests[i]
		wants := got.Demands[0].Wants
		same := got.Resource == r.GetResourceId() && got.Demands[0].Priority == r.GetPriority() &&
			math.Float64bits(wants) == math.Float64bits(r.GetWants()) &&
			got.Has.Expiry.IsZero() == (r.Has == nil)
		seconds := r.GetHas().GetExpiryTime()
		if r.Has != nil && seconds >= 0 && seconds <= doormanpb.MaxSeconds {
			same = same && got.Has.Expiry.Equal(time.Unix(seconds, 0))
		}
		if r.Has != nil {
			same = same && math.Float64bits(got.Has.Capacity) == math.Float64bits(r.GetHas().GetCapacity())
		}
		if !same {
			t.Fatalf("%x, entry %d = %+v, want %v", message, i, got, r)
		}
	}
}

// sane looks at an answer, as its client does.
func sane(t *testing.T, c *capacityCall, to redirect) {
	t.Helper()
	var answer doormanpb.GetCapacityResponse
	if err := proto.Unmarshal(writeGet(c, to)[0].ReadOnlyData(), &answer); err != nil && len(c.grants) > 0 {
		t.Fatalf("the answer cannot be read: %v", err)
	}
	if n := len(answer.GetResponse()); n != len(c.requests) && (c.refusal == nil || n > len(c.requests)) {
		t.Fatalf("%d answers to %d requests, want as many", n, len(c.requests))
	}
	next := 0
	for i, r := range answer.GetResponse() {
		for c.refusal != nil && next < len(c.requests) && c.requests[next].Resource != r.GetResourceId() {
			next++ // it was left out
		}
		if next == len(c.requests) {
			t.Fatalf("answer %d is %v, want one to %+v", i, r, c.requests)
		}
		asked := &c.requests[next]
		next++
		grant, safe := r.GetGets().GetCapacity(), r.GetSafeCapacity()
		right := grant >= 0 && grant <= 100 && safe >= 0 && safe <= 100
		if r.GetResourceId() != asked.Resource || !right {
			t.Fatalf("answer %d to %+v is %v, want 0 to 100", i, asked, r)
		}
		if wants := asked.Demands[0].Wants; wants == wants && grant > wants && c.refusal == nil {
			t.Fatalf("answer %d to %+v is %v, more than is wanted", i, asked, r)
		}
	}
}

// FuzzGetServerCapacity does the same for servers, and for what they release.
func FuzzGetServerCapacity(f *testing.F) {
	for _, c := range refusals() {
		if len(c.message) < 1000 {
			f.Add(c.message)
		}
	}
	f.Add(askedBelow(new("r"), band(3, 2, 50), band(-1, 1, 0)))
	config := Config{Limits: capacity.Limits{Resources: 50, Leases: 50}}
	s := start(f, config, shared(capacity.ProportionalShare, 100))
	f.Fuzz(func(t *testing.T, message []byte) {
		c := s.newCall()
		c.fault = c.readServerGet(message)
		agreeBelow(t, message, c)
		to, err := s.answerCall(overGRPC, rpcGetServerCapacity, c)
		if err == nil {
			var answer doormanpb.GetServerCapacityResponse
			out := writeGet(c, to)
			err := proto.Unmarshal(out[0].ReadOnlyData(), &answer)
			if err != nil || len(answer.GetResponse()) != len(c.requests) && c.refusal == nil {
				t.Fatalf("the answer to %x is %v, %v, want one for each request", message, &answer, err)
			}
		}
		s.freeCall(c)
		c = s.newCall()
		c.fault = c.readRelease(message)
		agreeReleased(t, message, c)
		_, err = s.answerCall(overGRPC, rpcReleaseCapacity, c)
		if err != nil && gatehouse.CodeOf(err) != gatehouse.CodeInvalid {
			t.Fatalf("releasing %x = %v, want it released or refused", message, err)
		}
		s.freeCall(c)
		for _, status := range s.all() {
			right := status.Has >= 0 && status.Has <= 100 && status.Wants >= 0 && status.Wants < 1e30
			if !right {
				t.Fatalf("after %x there is %+v, want sums of what makes sense", message, status)
			}
		}
	})
}

// agreeBelow compares what was read of a server's request with what the generated code makes of it.
func agreeBelow(t *testing.T, message []byte, c *capacityCall) {
	t.Helper()
	var want doormanpb.GetServerCapacityRequest
	err := proto.UnmarshalOptions{AllowPartial: true}.Unmarshal(message, &want)
	whole := err == nil && proto.CheckInitialized(&want) == nil
	if c.fault != nil {
		small := len(want.GetResource()) <= maxEntries
		for _, r := range want.GetResource() {
			small = small && len(r.GetWants()) <= maxBands
		}
		if whole && small {
			t.Fatalf("%x = %v, want %v", message, c.fault, &want)
		}
		return
	}
	if !whole || c.client != want.GetServerId() || len(c.requests) != len(want.GetResource()) {
		t.Fatalf("%x = %+v, want %v, %v", message, c, &want, err)
	}
	for i, r := range want.GetResource() {
		got := c.requests[i]
		same := got.Server && got.Resource == r.GetResourceId() &&
			got.Has.Expiry.IsZero() == (r.Has == nil) &&
			math.Float64bits(got.Has.Capacity) == math.Float64bits(r.GetHas().GetCapacity()) &&
			len(got.Demands) == max(len(r.GetWants()), 1)
		for k, band := range r.GetWants() {
			d := got.Demands[k]
			same = same && d.Priority == band.GetPriority() && d.Clients == band.GetNumClients() &&
				math.Float64bits(d.Wants) == math.Float64bits(band.GetWants())
		}
		if !same {
			t.Fatalf("%x, entry %d = %+v, want %v", message, i, got, r)
		}
	}
}

// agreeReleased does the same for what is released. Empty names mean nothing.
func agreeReleased(t *testing.T, message []byte, c *capacityCall) {
	t.Helper()
	var want doormanpb.ReleaseCapacityRequest
	err := proto.UnmarshalOptions{AllowPartial: true}.Unmarshal(message, &want)
	whole := err == nil && proto.CheckInitialized(&want) == nil
	names := slices.DeleteFunc(want.GetResourceId(), func(name string) bool { return name == "" })
	if c.fault != nil && (!whole || len(names) > maxEntries) {
		return
	}
	if c.fault != nil || !whole || c.client != want.GetClientId() || !slices.Equal(c.released, names) {
		t.Fatalf("releasing %x = %+v, want %v, %v", message, c, &want, err)
	}
}
