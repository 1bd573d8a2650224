#!/usr/bin/env bash
# All that must pass before a commit, from a bare Debian with Go, git and apt, in 10 minutes.
# As root it installs what is missing; as anybody else it says how.
set -euo pipefail
cd "$(dirname "$0")"

# Without C, as etcd and the tools are built: so all of them share what is compiled.
export CGO_ENABLED=0

# Without the names of folders in what is compiled, another clone has nothing of it to compile again.
export GOFLAGS="${GOFLAGS:+$GOFLAGS }-trimpath"

step="start"
folder=$(mktemp -d)

# A program with the race detector waits a second before it ends, so that its last reports are complete; less
# will do, as these programs wait for their goroutines.
export GORACE="atexit_sleep_ms=100"

summary() {
	local code=$?
	jobs -p | xargs -r kill 2>/dev/null || true
	rm -rf "$folder"
	if [ "$code" -eq 0 ]; then
		echo "PASS: everything, in ${SECONDS} s"
	else
		echo "FAIL: ${step}, after ${SECONDS} s"
	fi
}
trap summary EXIT

# begin NAME COMMAND... shows the name and the seconds so far, and runs the command.
begin() {
	step=$1
	printf '=== %4d s  %s\n' "$SECONDS" "$step"
	shift
	"$@" </dev/null
}

# has_headers is whether gcc can compile for real: the race detector needs the C library.
has_headers() {
	echo '#include <stdlib.h>' | gcc -E - >/dev/null 2>&1
}

install_missing() {
	local packages=()
	has_headers || packages+=(gcc libc6-dev)
	local tool
	for tool in make curl chromium redis-server; do
		command -v "$tool" >/dev/null || packages+=("$tool")
	done
	command -v redis-benchmark >/dev/null || packages+=(redis-tools)
	command -v protoc >/dev/null || packages+=(protobuf-compiler)
	command -v node >/dev/null || packages+=(nodejs)
	/usr/bin/python3 -c 'import redis' 2>/dev/null || packages+=(python3-redis)
	if [ "${#packages[@]}" -eq 0 ]; then
		return
	fi
	local install="apt-get install -y --no-install-recommends ${packages[*]}"
	if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
		echo "missing: ${packages[*]}; run as root: apt-get update && $install"
		exit 1
	fi
	echo "missing: ${packages[*]}; running: apt-get update && $install"
	export DEBIAN_FRONTEND=noninteractive
	apt-get update -qq
	$install -qq >/dev/null
}

formatted() {
	local files
	files=$(gofmt -s -l .)
	if [ -n "$files" ]; then
		printf 'not formatted, make fmt does it:\n%s\n' "$files"
		return 1
	fi
}

# begin_beside NAME COMMAND... runs a command beside what follows, until finish NAME shows what it printed.
declare -A beside
begin_beside() {
	local name=$1
	shift
	"$@" >"$folder/$name" 2>&1 </dev/null &
	beside[$name]=$!
}

finish() {
	local code=0
	wait "${beside[$1]}" || code=$?
	cat "$folder/$1"
	return "$code"
}

# Tests start real etcd members. Building etcd takes a minute, once for each user and version: it runs beside
# what comes first, by the test that looks for the program.
build_etcd() {
	go test -count=1 -run '^TestBinary$' ./internal/etcdtest
}

# Four packages start the server: it is linked once for all of them.
build_server() {
	export TESTED_BINARY="$folder/gatehouse"
	go build -tags otel -o "$TESTED_BINARY" ./cmd/gatehouse
}

# With the race detector everything is compiled a second time. So it is here for those that need few other
# packages and share much between goroutines; "make race" tests all packages with it. -short makes long rounds
# short, here and below; "make race" plays them whole.
with_race=(./gate ./store/memory ./store/breaker ./store/storetest ./internal/peer)

# One after the other: beside another program, one with the race detector takes several times as long.
test_with_race() {
	CGO_ENABLED=1 go test -race -vet=off -ldflags=-w -c -o "$folder/race/" "${with_race[@]}"
	local package
	for package in "${with_race[@]}"; do
		echo "$package"
		(cd "$package" && "$folder/race/${package##*/}.test" -test.paniconexit0 -test.short \
			-test.shuffle=on -test.timeout=10m)
	done
}

test_others() {
	local packages
	# What takes longest begins first: most of that time it waits for other processes.
	local first=(./store/cas/redis ./store/cas/etcd ./internal/election ./internal/front/grpc ./client/lease
		./test/chaos ./test/soak ./test/sim)
	# The tests from outside run beside these.
	local tested=("${with_race[@]}" ./test/e2e)
	packages="${first[*]} $(comm -23 <(go list ./... | sort) <(go list "${tested[@]}" "${first[@]}" | sort))"
	# go vet has looked at all of them. Twice as many at once as there are processors, because they wait.
	# shellcheck disable=SC2086 # they are words
	go test -p "$((2 * $(nproc)))" -short -vet=off -ldflags=-s -shuffle=on -timeout 10m $packages
}

# generated_is_current is whether the code of doormanpb is what its sources make.
generated_is_current() {
	mkdir "$folder/proto"
	make -s proto PROTO_OUT="$folder/proto"
	# Other files there are written by hand.
	if ! diff <(cat internal/front/grpc/doormanpb/*.pb.go) <(cat "$folder"/proto/doormanpb/*.pb.go); then
		echo 'the generated code is old, make proto renews it'
		return 1
	fi
}

# The tests from outside use the program as it is delivered.
test_from_outside() {
	go test -short -vet=off -ldflags=-s -shuffle=on -timeout 10m ./test/e2e
}

# To compile for another system takes more than a minute where nothing is compiled yet, to look at all types a
# few seconds.
types_fit() (
	cd internal/tools
	go run ./portable ../.. darwin windows
	go run ./portable ../../test/bench linux # a module of its own, which ./... does not reach
)

# What is released has traces.
test_with_traces() {
	go test -tags otel ./internal/traces ./cmd/gatehouse
}

begin "tools" install_missing
begin_beside etcd build_etcd
begin "go vet" go vet ./...
begin "gofmt" formatted
begin "generated code" generated_is_current
begin "etcd is built" finish etcd
begin "server" build_server
begin_beside outside test_from_outside
begin "tests with the race detector" test_with_race
begin_beside types types_fit
begin_beside traces test_with_traces
begin "tests" test_others
begin "types fit: darwin, windows, bench" finish types
begin "tests with traces" finish traces
begin "tests from outside" finish outside
