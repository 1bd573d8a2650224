package control

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/gatehousehq/gatehouse"
)

// TestReusedTurn: a turn that is used again has nothing of its earlier use but the decision.
func TestReusedTurn(t *testing.T) {
	turn := Turn{Decision: gatehouse.Decision{Message: "of an earlier use"}}
	fields := reflect.ValueOf(&turn).Elem()
	for i := range fields.NumField() {
		fillField(t, fields.Type().Field(i).Name, fields.Field(i))
	}
	cmd, grant := new(gatehouse.Command), new(GrantTurn)
	turn.reuseFor(cmd, grant)
	want := Turn{Command: cmd, Grant: grant, Decision: turn.Decision}
	if fmt.Sprintf("%+v", turn) != fmt.Sprintf("%+v", want) || turn.Command != cmd || turn.Grant != grant {
		t.Errorf("a turn that is used again is %+v, want %+v", turn, want)
	}
}

// fillField gives a field some other value than zero.
func fillField(t *testing.T, name string, field reflect.Value) {
	t.Helper()
	switch {
	case name == "Decision":
	case name == "Err":
		field.Set(reflect.ValueOf(ErrMemory))
	case name == "Since":
		field.Set(reflect.ValueOf(epoch()))
	case field.Kind() == reflect.Pointer:
		field.Set(reflect.New(field.Type().Elem()))
	case field.CanInt():
		field.SetInt(1)
	case field.CanUint():
		field.SetUint(1)
	case field.Kind() == reflect.Bool:
		field.SetBool(true)
	default:
		t.Fatalf("field %s is a %s, for which there is no value here", name, field.Type())
	}
}
