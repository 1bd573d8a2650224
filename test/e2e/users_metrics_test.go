package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMetricsOfUsers reads what is counted by kind, by rule and by user: decisions, those near the limit,
// time waited, and what was refused to users. No label has a name or a key.
func TestMetricsOfUsers(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	users, config := filepath.Join(folder, "users.yaml"), filepath.Join(folder, "gatehouse.yaml")
	writeUsers(t, users,
		[2]string{"ci", `may: [{on: "gcra/*", do: use, size: 100}, {on: "lock/mine-*", do: use}]` + "\n" +
			"    at-most: {names: 3}"},
		[2]string{"blue", `prefix: team-blue/` + "\n" + `    may: [{on: "*", do: use}]`},
		[2]string{"ops", `may: [{on: "*", do: manage}]` + "\n" +
			"  - name: anonymous\n    may: [{on: server/health, do: read}]"})
	if err := os.WriteFile(config, []byte(twoRules), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, "--users", users, "--config", config)
	for _, c := range []struct {
		user, path, body string
		want             int
	}{
		{"ci", "/v1/gcra/secret/acquire?size=10&interval=60000&burst=9&cost=10", "", 204}, // none left
		{"ci", "/v1/lock/mine-secret/acquire?key=hush", "", 200},
		{"ci", "/v1/lock/mine-secret/acquire?key=hush-2&maxwait=30", "", 408},
		{"ci", "/v1/lock/secret/acquire?key=hush", "", 403},
		{"ci", "/v1/lock/mine-secret/close", "", 403},
		{"ci", "/v1/gcra/secret/acquire?size=1000&interval=60000", "", 403},
		{"ci", "/v1/grants", `{"want":[{"lock":"mine-secret"},{"lock":"secret"}],"maxwait":0}`, 403},
		{"ci", "/v1/batch", `{"commands":[{"op":"acquire","lock":"secret","key":"hush"}]}`, 200},
		{"ci", "/v1/lock/mine-3/acquire?key=hush", "", 200},
		{"ci", "/v1/lock/mine-4/acquire?key=hush", "", 429}, // the fourth name
		{"blue", "/v1/lock/secret/close", "", 403},
		{"", "/v1/lock/secret/acquire?key=hush", "", 401},
	} {
		token := canary + c.user
		if c.user == "" {
			token = ""
		}
		got, text := s.ask(t, asked{method: "POST", path: c.path, body: c.body, token: token})
		if got != c.want {
			t.Errorf("%s %s by %q = %d %s, want %d", c.path, c.body, c.user, got, text, c.want)
		}
	}
	s.ask(t, asked{method: "GET", path: "/metrics", token: canary + "ci"})
	redis := dialRedis(t, s.redisAddress(t))
	redis.want("AUTH "+canary+"ci", "OK")
	redis.send("GH.ACQUIRE lock/secret KEY hush")
	if got := redis.answer(); !strings.Contains(got, "NOPERM") {
		t.Errorf("an acquire over RESP without the right = %s, want NOPERM", got)
	}

	_, page := s.ask(t, asked{method: "GET", path: "/metrics", token: canary + "ops"})
	for _, want := range metricsOfUsers {
		if !strings.Contains(page, "\n"+want+"\n") {
			t.Errorf("/metrics has no %s in\n%s", want, linesWith(page, "_rights_"))
		}
	}
	for _, metric := range []string{
		`gatehouse_waited_seconds_total{kind="lock"}`,
		`gatehouse_rule_waited_seconds_total{rule="lock/mine-*"}`,
		`gatehouse_user_waited_seconds_total{user="ci"}`,
	} {
		if seconds := valueOf(t, page, metric); seconds < 0.03 {
			t.Errorf("%s = %v, want 0.03 and more", metric, seconds)
		}
	}
	for _, hidden := range []string{"secret", "hush", canary} {
		if strings.Contains(page, hidden) {
			t.Errorf("/metrics has %q", hidden)
		}
	}
}

const twoRules = `
rules:
  - {match: "lock/mine-*", on-unreachable: refuse}
  - {match: "lock/team-blue/*", on-unreachable: refuse}
`

// metricsOfUsers is what TestMetricsOfUsers has the server show.
var metricsOfUsers = []string{
	`gatehouse_near_limit_total{kind="gcra"} 1`,
	`gatehouse_rule_decisions_total{outcome="granted",rule="lock/mine-*"} 2`,
	`gatehouse_rule_decisions_total{outcome="refused",rule="lock/mine-*"} 1`,
	`gatehouse_rule_near_limit_total{rule="(none)"} 1`,
	`gatehouse_user_decisions_total{outcome="granted",user="ci"} 3`,
	`gatehouse_user_decisions_total{outcome="refused",user="ci"} 1`,
	`gatehouse_user_near_limit_total{user="ci"} 1`,
	`gatehouse_rights_refused_total{kind="lock",reason="forbidden"} 7`,
	`gatehouse_rights_refused_total{kind="lock",reason="quota"} 1`,
	`gatehouse_rights_refused_total{kind="gcra",reason="forbidden"} 1`,
	`gatehouse_rights_refused_total{kind="server",reason="forbidden"} 1`,
	`gatehouse_rule_rights_refused_total{reason="forbidden",rule="lock/mine-*"} 1`,
	`gatehouse_rule_rights_refused_total{reason="forbidden",rule="lock/team-blue/*"} 1`,
	`gatehouse_rule_rights_refused_total{reason="quota",rule="lock/mine-*"} 1`,
	`gatehouse_user_rights_refused_total{reason="forbidden",user="ci"} 7`,
	`gatehouse_user_rights_refused_total{reason="quota",user="ci"} 1`,
	`gatehouse_user_rights_refused_total{reason="forbidden",user="blue"} 1`,
	`gatehouse_user_rights_refused_total{reason="forbidden",user="anonymous"} 1`,
}
