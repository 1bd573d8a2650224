// Package doormanpb has the messages and the service of doorman's protocol.
package doormanpb

import "google.golang.org/protobuf/encoding/protowire"

// LearningField is the number of a field of Gatehouse's own in a ResourceResponse, which doorman's clients do
// not know and pass over: for how many seconds, at most, the server still gives clients what they say they
// hold, because it does not know yet which client holds how much. It is absent otherwise.
const LearningField protowire.Number = 100

// LearningSeconds returns that field of a response; 0 when it is absent.
func LearningSeconds(r *ResourceResponse) int64 {
	for rest := []byte(r.ProtoReflect().GetUnknown()); len(rest) > 0; {
		number, _, n := protowire.ConsumeField(rest)
		if n < 0 {
			return 0
		}
		if number == LearningField {
			_, _, head := protowire.ConsumeTag(rest)
			if value, size := protowire.ConsumeVarint(rest[head:]); size > 0 {
				return int64(value) // two's complement
			}
		}
		rest = rest[n:]
	}
	return 0
}
