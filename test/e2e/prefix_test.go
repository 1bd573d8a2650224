package e2e

import (
	"fmt"
	"testing"

	"github.com/gatehousehq/gatehouse/internal/redistest"
)

// Names that begin alike are deleted together, in every store and through both doors, and no others.
func TestDeletePrefix(t *testing.T) {
	t.Parallel()
	for _, store := range []string{"memory", "disk", "redis"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			at := store
			switch store {
			case "disk":
				at += ":" + t.TempDir()
			case "redis":
				at = "redis://" + redistest.Start(t).Address
			}
			s := start(t, "--store", at, "--resp", "localhost:0")
			c := dialRedis(t, s.redisAddress(t))
			names := []string{"a", "spam", "spam!", "spam/é", "spa", "sqam", "zz"}
			for i := range 1002 {
				names = append(names, fmt.Sprintf("spam%d", i))
			}
			for _, name := range names {
				c.send("GH.COUNT counter/" + name)
			}
			for range names {
				c.answer()
			}
			s.want(t, "DELETE /v1/counter", "400 prefix is missing…")
			s.want(t, "DELETE /v1/counter?prefix=&confirm=counter", "400 prefix is missing…")
			s.want(t, "DELETE /v1/counter?prefix=spam", "400 confirm is…")
			s.want(t, "DELETE /v1/counter?prefix=spam&confirm=lock", "400 confirm is…")
			s.want(t, "DELETE /v1/counter?prefix=spam&confirm=counter&limit=5", "400 parameter…")
			s.want(t, "DELETE /counter?prefix=spam&confirm=counter", "405")
			s.want(t, "/v1/counter/spam/value", "200 1")
			s.want(t, "DELETE /v1/counter?prefix=spam&confirm=counter",
				`200 {"kind":"counter","deleted":1000,"next":"spam994"}`)
			s.want(t, "DELETE /v1/counter?prefix=spam&confirm=counter&after=spam994",
				`200 {"kind":"counter","deleted":5,"next":""}`)
			s.want(t, "DELETE /v1/counter?prefix=spam&confirm=counter",
				`200 {"kind":"counter","deleted":0,"next":""}`)
			s.want(t, "/v1/counter", `200 {"kind":"counter","names":["a","spa","sqam","zz"],"next":""}`)

			c.want("GH.DELETEPREFIX counter s CONFIRM lock", "-INVALID …CONFIRM counter…")
			c.want("GH.DELETEPREFIX counter s CONFIRM counter MOST 5", "-INVALID …MOST…")
			c.want("GH.DELETEPREFIX counter s CONFIRM counter AFTER spaz", "[1 ]")
			c.want("GH.DELETEPREFIX counter s CONFIRM counter", "[1 ]")
			c.want("GH.LIST counter", "[a zz]")
		})
	}
}

// Who waits at a name that is deleted with others is told so.
func TestDeletePrefixTellsWaiters(t *testing.T) {
	t.Parallel()
	s := start(t)
	waiter := s.wait(t, "/v1/event/deploy/wait")
	s.want(t, "DELETE /v1/event?prefix=dep&confirm=event", `200 {"kind":"event","deleted":1,"next":""}`)
	if a := waiter.answer(); a.status != 409 {
		t.Errorf("who waited at a name that was deleted = %s, want 409", a)
	}
}
