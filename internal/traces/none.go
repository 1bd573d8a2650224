//go:build !otel

package traces

import "context"

// Open returns an error: this program was built without traces.
func Open(context.Context, Config) (Tracer, error) { return nil, errNotBuilt }
