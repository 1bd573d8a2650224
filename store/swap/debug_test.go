package swap_test
import ("testing";"os";"github.com/gatehousehq/gatehouse/control";"github.com/gatehousehq/gatehouse/store/swap";"fmt")
func dump(m *model){
 for k,d:=range m.store.Records(){ c,_:=swap.ReadRecord(k.Kind,d); fmt.Println(k,c.Heads,c.AsOf); if s,ok:=c.State.(*control.Semaphore);ok{ for _,h:=range s.Holds(){fmt.Printf("  %+v\n",h)}}}
 os.WriteFile("/tmp/w/swap.log",[]byte(m.store.Log()),0o644)
}
var _ *testing.T
