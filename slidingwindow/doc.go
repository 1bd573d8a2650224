// Package slidingwindow limits how many events pass in a window of time that slides, in one process
// or in many that share their counts. It has the names and the decisions of
// github.com/RussellLuo/slidingwindow: a program that used that changes the import path and nothing else.
//
// Two counters stand for the window: one for the present fixed window and one for the one before it,
// which weighs by how much of it the sliding window still covers. With 86 events in the last minute
// and 12 in the 15 seconds of this one, the estimate is 86*45/60 + 12 = 76 (64.5 counts as 64), and a
// limit of 100 lets 24 more pass.
//
// A [LocalWindow] counts in memory. A [SyncWindow] exchanges what it counted with other processes
// through a [Datastore]: it decides by what it knows and reports afterwards, so that k processes may
// together let more pass than the limit; how much more is bounded. A [StrictWindow] takes from the
// store before it lets anything pass, and together they never let one too many pass.
package slidingwindow
