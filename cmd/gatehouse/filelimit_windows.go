package main

// ignoreFileLimit does nothing: there is no such limit.
func ignoreFileLimit() {}

// openFileLimit is 0: the number of connections is not limited.
func openFileLimit() int64 { return 0 }
