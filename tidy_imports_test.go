package gatehouse_test

// anything allows all folders of this module.
const anything = "*"

// direction says for a folder, and those below it without a row, what of this module it may import.
// A folder that imports from this module needs a row. Tests may import what they like.
var direction = map[string][]string{
	".":                          {},
	"internal":                   {},
	"internal/params":            {".", "internal/digits"},
	"internal/ratelimit":         {".", "internal/digits"},
	"internal/telemetry":         {"."},
	"internal/activity":          {".", "gate"},
	"internal/page":              {"internal/manual"},
	"internal/decisions":         {".", "gate", "internal/glob", "internal/params", "internal/topk"},
	"internal/traces":            {".", "gate", "control"},
	"internal/glob":              {"."},
	"internal/access":            {".", "gate", "internal/glob", "internal/peer", "internal/yamlnode"},
	"internal/access/accesstest": {"internal/access"},
	"internal/certstest":         {"internal/certs"},
	"internal/openapi":           {"."},
	"internal/manual":            {".", "docs", "internal/openapi"},
	"internal/supervisor/guard":  {"internal/supervisor"},
	"internal/etcd":              {"internal/certs", "internal/certs/rpccerts"},
	"internal/etcdkey":           {"internal/etcd", "internal/etcdtest"},
	"internal/certs":             {"internal/filewatch", "internal/smallfile", "internal/telemetry"},
	"internal/tlsconn":           {"internal/budget"},
	"internal/eventloop":         {"internal/peer", "internal/tlsconn"},
	"internal/redistest":         {"internal/await", "internal/freeport"},
	"internal/etcdtest":          {"internal/await", "internal/etcd", "internal/freeport"},
	"internal/election":          {"internal/backoff", "internal/etcd"},
	"internal/simulate":          {".", "capacity", "internal/minheap", "internal/yamlnode"},
	"internal/front":             {".", "gate", "capacity", "internal"},
	"internal/config": {
		".", "internal/front/jarl", "capacity", "store", "internal/etcdkey", "internal/filewatch",
		"internal/glob",
		"internal/smallfile", "internal/yamlnode",
	},
	"control":                  {".", "internal"},
	"gate":                     {".", "control", "internal"},
	"limiter":                  {"."},
	"store":                    {".", "control", "internal", "store"},
	"store/storetest":          {anything},
	"capacity":                 {".", "internal"},
	"client":                   {"."},
	"hold":                     {".", "internal/backoff"},
	"middleware":               {".", "internal/asking", "internal/ratelimit"},
	"internal/asking":          {"."},
	"client/lease":             {".", "capacity", "limiter", "internal/front/grpc/doormanpb"},
	"slidingwindow/redisstore": {"slidingwindow"},
	"cmd":                      {anything},
	"test":                     {anything},
}
