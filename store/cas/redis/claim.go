package redis

import (
	"fmt"
	"time"

	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/redis/rueidis"
)

// A record that a server has claimed has the claim before it, which the script writes and reads: 1 byte 2,
// where a record without one has its version; the server in 8 hexadecimal digits; until when the others wait,
// in 16 digits of microseconds.
const (
	claimedForm = 2
	claimSize   = 1 + 8 + 16
)

// claimArgument is the argument of the script that says who asks and what it claims, empty if it claims
// nothing.
func claimArgument(change *cas.RecordChange) string {
	if change.Claim == 0 {
		return ""
	}
	return fmt.Sprintf("%08x%d", change.Server, change.Claim.Microseconds())
}

// stripClaim is a stored record without the claim on it.
func stripClaim(data []byte) []byte {
	if len(data) > claimSize && data[0] == claimedForm {
		return data[claimSize:]
	}
	return data
}

// readClaimed reads the answer that the record is claimed by another server, and for how long.
func readClaimed(answer *rueidis.RedisMessage) (record rueidis.RedisMessage, rest time.Duration, err error) {
	parts, err := answer.ToArray()
	const record1, micros = 0, 1
	if err != nil || len(parts) != 2 {
		return record, 0, errAnswer
	}
	n, err := parts[micros].ToInt64()
	if err != nil {
		return record, 0, errAnswer
	}
	// At least 1, because 0 would say that no claim bars the change.
	return parts[record1], max(1, time.Duration(n)*time.Microsecond), nil
}
