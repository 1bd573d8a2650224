package bouncer

import "fmt"

// longest is how much of somebody else's text is repeated in a message.
const longest = 80

// quote makes a text safe to repeat in a message or a log line: escaped, and cut when long.
func quote(text []byte) string {
	if len(text) > longest {
		return fmt.Sprintf("%q…", text[:longest])
	}
	return fmt.Sprintf("%q", text)
}
