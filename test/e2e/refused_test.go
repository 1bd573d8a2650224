package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gatehousehq/gatehouse/internal/redistest"
)

// A name that was only refused has statistics, and what was refused counts with what comes later.
func TestRefusedNamesHaveStatistics(t *testing.T) {
	t.Parallel()
	for store, s := range map[string]*server{
		"memory": shared(), "disk": start(t, "--store", "disk:"+t.TempDir()),
		"redis": startShared(t, redistest.Start(t), 1, patient...)[0],
	} {
		name := fresh(t)
		for _, path := range []string{
			"/v1/event/" + name + "/wait?maxwait=0",
			"/v1/barrier/" + name + "/wait?size=2&maxwait=0",
			"/v1/semaphore/" + name + "/acquire?size=0&maxwait=0",
			"/v1/tokenbucket/" + name + "/acquire?size=0&maxwait=0",
		} {
			kind := strings.Split(path, "/")[2]
			s.want(t, "/v1/"+kind+"/"+name+"/stats", "404")
			runCurl(t, "http://"+s.address+path)
			if got := s.stat(t, kind+"/"+name, "timed_out"); got != 1 {
				t.Errorf("%s: timed_out of a %s that was only refused = %d, want 1", store, kind, got)
			}
			runCurl(t, "http://"+s.address+path)
			if got := s.stat(t, kind+"/"+name, "timed_out"); got != 2 {
				t.Errorf("%s: timed_out of a %s after two refusals = %d, want 2", store, kind, got)
			}
		}
		s.want(t, "/v1/event/"+name+"/send?message=m", "204")
		s.want(t, "/v1/event/"+name+"/wait?maxwait=0", "204")
		if got := s.stat(t, "event/"+name, "timed_out"); got != 2 {
			t.Errorf("%s: timed_out of an event that was sent after two refusals = %d, want 2", store, got)
		}
	}
}

// A flood of names that are refused takes no room from what holds, at no time more than there is.
func TestRefusedNamesTakeNoRoom(t *testing.T) {
	t.Parallel()
	s := start(t, "--max-names", "50")
	for i := range 20 {
		s.want(t, fmt.Sprintf("/v1/lock/l%d/acquire?expires=0&key=k", i), "200")
	}
	for i := range 200 {
		s.want(t, fmt.Sprintf("/v1/event/flood%d/wait?maxwait=0", i), "408")
	}
	if metrics := s.get(t, "/metrics").body; !strings.Contains(metrics, "\ngatehouse_names 50\n") {
		t.Errorf("after a flood of refused names the metrics have\n%s\nwant gatehouse_names 50",
			linesWith(metrics, "gatehouse_names"))
	}
	for i := 20; i < 50; i++ {
		s.want(t, fmt.Sprintf("/v1/lock/l%d/acquire?expires=0&key=k", i), "200")
	}
	s.want(t, "/v1/lock/more/acquire?expires=0&key=k", "503")
	s.want(t, "/v1/event/more/wait?maxwait=0", "408")
	for i := range 50 {
		s.want(t, fmt.Sprintf("/v1/lock/l%d/release?key=k", i), "204")
	}
}
