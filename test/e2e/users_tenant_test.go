package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestTenants has two tenants and an operator at the same names: none sees, holds, fills or ends what is
// another's, and no answer shows a prefix to its tenant.
func TestTenants(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "users.yaml")
	writeUsers(t, file,
		[2]string{"blue", `prefix: team-blue/` + "\n" + `    may: [{on: "*", do: manage}]`},
		[2]string{"red", `prefix: team-red/` + "\n" + `    may: [{on: "*", do: manage}]`},
		[2]string{"ops", `may: [{on: "*", do: manage}]`})
	s := start(t, "--users", file)
	const prefix = "team-"
	ask := func(user string, request [3]string, want int, parts ...string) {
		t.Helper()
		method, path, body := request[0], request[1], request[2]
		got, text := s.ask(t, asked{method: method, path: path, body: body, token: canary + user})
		if got != want {
			t.Errorf("%s %s by %s = %d %s, want %d", method, path, user, got, text, want)
		}
		if user != "ops" && strings.Contains(text, prefix) {
			t.Errorf("%s %s shows its prefix to %s: %s", method, path, user, text)
		}
		for _, part := range parts {
			if !strings.Contains(text, part) {
				t.Errorf("%s %s by %s = %s, want %s in it", method, path, user, text, part)
			}
		}
	}
	ask("blue", [3]string{"POST", "/v1/lock/deploy/acquire?key=job-1&maxwait=0", ""}, 200)
	ask("red", [3]string{"POST", "/v1/lock/deploy/acquire?key=job-1&maxwait=0", ""}, 200)
	ask("blue", [3]string{"POST", "/v1/lock/deploy/acquire?key=job-2&maxwait=0", ""}, 408, "lock/deploy")
	ask("blue", [3]string{"POST", "/v1/lock/deploy/acquire?key=job-2&maxwait=0&details=true", ""}, 200,
		"refused")
	ask("blue", [3]string{"GET", "/v1/lock", ""}, 200, `["deploy"]`)
	ask("blue", [3]string{"GET", "/v1/lock?details=true&prefix=de", ""}, 200, `"deploy"`)
	ask("blue", [3]string{"GET", "/v1/lock/nothing/stats", ""}, 404, "lock/nothing")
	ask("ops", [3]string{"GET", "/v1/lock", ""}, 200, `["team-blue/deploy","team-red/deploy"]`)
	grant := `{"id":"g","expires":60000,"maxwait":0,"want":[{"semaphore":"slots","size":1},` +
		`{"gcra":"rate","limits":"9/1m"}]}`
	ask("blue", [3]string{"POST", "/v1/grants", grant}, 200, `"semaphore":"slots"`, `"id":"g"`)
	ask("red", [3]string{"GET", "/v1/grants/g", ""}, 404, "grant/g")
	ask("red", [3]string{"POST", "/v1/grants/g/release", ""}, 404)
	ask("blue", [3]string{"POST", "/v1/grants", strings.Replace(grant, `"g"`, `"h"`, 1)}, 429,
		"semaphore/slots")
	ask("blue", [3]string{"GET", "/v1/semaphore/slots/holders", ""}, 200, `"grant":"g"`)
	ask("blue", [3]string{"POST", "/v1/batch", `{"commands":[{"op":"acquire","lock":"deploy","key":"x"}]}`},
		200)
	for _, path := range []string{
		"/metrics", "/v1/top", "/v1/names", "/v1/server", "/v1/cycles", "/capacity", "/docs/",
	} {
		ask("blue", [3]string{"GET", path, ""}, 403)
	}
	ask("blue", [3]string{"DELETE", "/v1/lock?prefix=d&confirm=lock", ""}, 200, `"deleted":1`)
	// A key of one user is none of another's, also for an operator, who evicts instead.
	ask("ops", [3]string{"POST", "/v1/lock/shared/acquire?key=job-1&maxwait=0", ""}, 200)
	ask("ops", [3]string{"POST", "/v1/lock/team-red%2Fdeploy/release?key=job-1", ""}, 409)
	ask("red", [3]string{"POST", "/v1/lock/deploy/renew?key=job-1", ""}, 204)

	redis := dialRedis(t, s.redisAddress(t))
	redis.want("AUTH "+canary+"red", "OK")
	for _, command := range []string{
		"GH.LIST lock", "GH.LIST lock WITH DETAILS", "GH.ACQUIRE lock/deploy KEY z MAXWAIT 0 WITH DETAILS",
		"GH.HOLDERS lock/deploy", "GH.EXPLAIN LAST", "GH.RELEASE lock/deploy KEY nobody",
		"GH.STATS lock/nothing",
		"GH.GRANT MAXWAIT 0 WANT lock/deploy WITH DETAILS", "CL.THROTTLE u 5 10 60", "GH.CLOSE lock/deploy",
	} {
		redis.send(command)
		if got := redis.answer(); strings.Contains(got, prefix) || strings.Contains(got, "~") {
			t.Errorf("%s = %s, which shows what the tenant must not see", command, got)
		}
	}
	awaitLine(t, s.journal, `"msg":"audit","user":"red","op":"close","key":"lock/team-red/deploy"`)
}

// TestQuotas has a user go beyond each quota, while another one is not disturbed.
func TestQuotas(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "users.yaml")
	writeUsers(t, file,
		[2]string{"greedy", `may: [{on: "*", do: use}]` + "\n" +
			`    at-most: {names: 20, holders: 10, connections: 3}`},
		[2]string{"hasty", `may: [{on: "*", do: use}]` + "\n" + `    at-most: {rate: 5/1h}`},
		[2]string{"other", `may: [{on: "*", do: use}]`})
	s := start(t, "--users", file)
	count := func(user, path string, times int) map[int]int {
		statuses := make(map[int]int)
		for i := range times {
			got, text := s.ask(t, asked{method: "POST", path: fmt.Sprintf(path, i), token: canary + user})
			statuses[got]++
			if got == 429 && !strings.Contains(text, "quota") {
				t.Errorf("429 says %s, want which quota", text)
			}
		}
		return statuses
	}
	for _, c := range []struct {
		user, path string
		want       map[int]int
	}{
		{"greedy", "/v1/semaphore/s/acquire?size=1000&key=k%d&expires=0&maxwait=0", map[int]int{200: 10,
			429: 90}},
		{"greedy", "/v1/gcra/name%d/acquire?size=1&interval=3600000&maxwait=0", map[int]int{204: 19,
			429: 81}},
		{"hasty", "/v1/counter/c/count?amount=%d", map[int]int{200: 5, 429: 95}},
		{"other", "/v1/gcra/name%d/acquire?maxwait=0", map[int]int{204: 81, 408: 19}},
	} {
		got := count(c.user, c.path, 100)
		for status, n := range c.want {
			if got[status] != n {
				t.Errorf("%s by %s = %v, want %v", c.path, c.user, got, c.want)
				break
			}
		}
	}
	refused := 0
	for range 6 {
		c := dialRedis(t, s.redisAddress(t))
		c.send("AUTH " + canary + "greedy")
		if strings.HasPrefix(c.answer(), "-QUOTA") {
			refused++
		}
	}
	if refused < 3 {
		t.Errorf("%d of 6 connections were refused, want those beyond 3", refused)
	}
}

// TestExplanationsHaveTheReadersNames has grants refused over a name that is written like one beneath a
// prefix.
func TestExplanationsHaveTheReadersNames(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "users.yaml")
	writeUsers(t, file, [2]string{"blue", `prefix: team-blue/` + "\n" + `    may: [{on: "*", do: use}]`},
		[2]string{"red", `prefix: team-red/` + "\n" + `    may: [{on: "*", do: use}]`},
		[2]string{"ops", `may: [{on: "*", do: manage}]`})
	s := start(t, "--users", file)
	const body = `{"id":"%s","expires":60000,"maxwait":0,"want":[{"lock":"of/team-blue/x"}]}`
	for _, user := range []string{"blue", "ops"} {
		<-s.postAs(t, user, "grants", fmt.Sprintf(body, "first"))
		refused := <-s.postAs(t, user, "grants", fmt.Sprintf(body, "second"))
		_, id, _ := strings.Cut(refused.text, `"decision":"`)
		id, _, _ = strings.Cut(id, `"`)
		explain := asked{method: "GET", path: "/v1/decisions/" + id, token: canary + user}
		got, text := s.ask(t, explain)
		for _, part := range []string{
			`"name":"second"`, `"name":"of/team-blue/x"`, `"binding":"lock/of/team-blue/x"`,
			`"grant":"first"`,
		} {
			if got != 200 || !strings.Contains(text, part) {
				t.Errorf("explanation for %s = %d %s, want %s in it", user, got, text, part)
			}
		}
		explain.token = canary + "red"
		if got, text := s.ask(t, explain); got != 404 {
			t.Errorf("explanation of another's refusal = %d %s, want 404", got, text)
		}
	}
}
