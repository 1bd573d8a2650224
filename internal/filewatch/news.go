package filewatch

// A LastReading remembers what came of reading files last. Notices also come for changes that leave the text
// as it was, and the same failure is to be told once. The zero value is ready to use.
type LastReading struct{ failure string }

// IsNews reports whether what came of reading the files again is to be told: that they hold something else
// than before, a failure, or the end of one. asked says that an operator waits for the answer, which is
// always told.
func (r *LastReading) IsNews(asked, changed bool, err error) bool {
	failure := ""
	if err != nil {
		failure = err.Error()
	}
	before := r.failure
	r.failure = failure
	return asked || failure != before || err == nil && changed
}
