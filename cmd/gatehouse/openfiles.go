package main

import "fmt"

// spareFiles are for all but connections from clients: listeners, event loops, the store, parents, logs.
const spareFiles = 100

// warnOfFewFiles warns if the process may not have as many files open as one of its listeners may have
// connections: what comes then waits until another connection ends. All listeners are seldom full at once, so
// they are not added up for that, but in what is advised. A limit of 0 is unknown.
func (h *house) warnOfFewFiles(limit int64) {
	var conns, most, listeners int64
	for _, d := range h.doors {
		if d.conns > 0 {
			conns += int64(d.conns)
			most = max(most, int64(d.conns))
			listeners++
		}
	}
	wanted := conns + spareFiles
	if limit <= 0 || listeners == 0 || limit >= most {
		return
	}
	h.log.Warn("the process may not open a file for each connection that --max-connections allows; "+
		"beyond the limit, clients wait until another connection ends",
		"limit", limit, "wanted", wanted, "listeners", listeners,
		"want", fmt.Sprintf("ulimit -n %d, LimitNOFILE=%d or --max-connections %d",
			wanted, wanted, max(1, (limit-spareFiles)/listeners)))
}
