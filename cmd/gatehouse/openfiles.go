package main

import "fmt"

// spareFiles is for everything except connections from clients: listeners, event loops, the store, logs.
const spareFiles = 100

// warnOfFewFiles logs a warning if the process may open fewer files than one of its listeners may have
// connections: beyond that, a client waits until another connection ends. limit is the most open files; 0 is
// unknown.
func (proc *serverProcess) warnOfFewFiles(limit int64) {
	var conns, most, listeners int64
	for _, l := range proc.listeners {
		// A listener without a limit, of JARL, is not counted: its connections last a moment.
		if l.maxConns > 0 {
			conns += int64(l.maxConns)
			most = max(most, int64(l.maxConns))
			listeners++
		}
	}
	// All listeners are seldom full at once. So the warning goes by the largest of them, to be no false
	// alarm, and the advice by their sum, to be enough in any case.
	wanted := conns + spareFiles
	if limit <= 0 || listeners == 0 || limit >= most {
		return
	}
	proc.log.Warn("the limit of open files is below --max-connections; "+
		"beyond it, clients wait until another connection ends",
		"limit", limit, "wanted", wanted, "listeners", listeners,
		"want", fmt.Sprintf("ulimit -n %d, LimitNOFILE=%d or --max-connections %d",
			wanted, wanted, max(1, (limit-spareFiles)/listeners)))
}
