package resp

import "testing"

// TestGuards wants every command to be one that needs no login, or to have a guard.
func TestGuards(t *testing.T) {
	all := newCommands()
	for _, c := range all {
		if _, known := guardOf(c); c.needsLogin() && !known {
			t.Errorf("command %s has no entry in commandGuards, want one that says who may send it", c.name)
		}
	}
	for name := range commandGuards {
		if all[name] == nil {
			t.Errorf("commandGuards has %s, which is no command, want it gone", name)
		}
	}
}
