package activity

import "github.com/gatehousehq/gatehouse"

// A View is what a user may see. Views that are equal are shown the same; a nil View shows everything, by
// the names that the gate knows.
type View interface {
	// Show returns a name of the gate as its viewer calls it; ok is false for one that it may not see.
	Show(key gatehouse.Key) (shown gatehouse.Key, ok bool)
	// Head is what all names of a kind begin with that it may see, as the gate knows them; ok is false if
	// there can be none.
	Head(kind gatehouse.Kind) (head string, ok bool)
}

// Show returns a name of the gate as a view shows it, which may be nil.
func Show(view View, key gatehouse.Key) (shown gatehouse.Key, ok bool) {
	if view == nil {
		return key, true
	}
	return view.Show(key)
}

// shownRows returns the rows that a view shows, by the names that its viewer knows. The rows that it is given
// stay as they are.
func shownRows(view View, rows []Row) []Row {
	if view == nil {
		return rows
	}
	shown := make([]Row, 0, len(rows))
	for _, row := range rows {
		key, ok := view.Show(row.Key)
		if ok {
			// A copy: all viewers and the cache share the rows.
			row.Key = key
			shown = append(shown, row)
		}
	}
	return shown
}

// shownTo returns the frame as a view shows it. The sums tell about all names, so that only those see them
// who see all names.
func (f frameJSON) shownTo(view View) frameJSON {
	if view != nil {
		// With the sums a tenant could watch what others do.
		f.sumsJSON, f.Rows = nil, shownRows(view, f.Rows)
	}
	return f
}
