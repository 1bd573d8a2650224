# What can be done here. Go is all that is needed; the rest is fetched when it is missing.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

# How long each fuzz function runs, and how many cases each property is tried on.
FUZZTIME ?= 1m
CHECKS ?= 20000

# How many fresh seeds make sim plays: 2000 of the fleet, 200 of each scenario of capacity leases, unless told
# otherwise. BASE is the first of the fleet's; SEED plays that one alone and prints all that happened.
SEEDS ?=
BASE ?=
SEED ?=
SIM_SECONDS ?= 1200

# Shows what tests log and each test that ends, while it happens.
SHOW := grep --line-buffered -vE '^(=== | +--- PASS)|\[rapid\] OK'

# How many calls make linearizable makes.
OPERATIONS ?= 50000

# What else make soak is told, such as SOAK="-memory 256 -only resp".
SOAK ?=

# How long make soak attacks, and make chaos has each store under load, and which: disk, redis, etcd, memory or all.
# CHAOS is what else it is told, such as CHAOS="-json -seed 1".
SECONDS ?= 60
STORE ?= all
CHAOS ?=

# Which commit make lines counts; empty is the working tree.
AT ?=

# Where make proto writes to.
PROTO_OUT ?= internal/front/grpc

# The linter's version is the one internal/tools/go.mod names. It is built once into the user's cache.
LINT_MODULE := github.com/golangci/golangci-lint/v2
LINT_VERSION := $(shell awk '$$1 == "$(LINT_MODULE)" { print $$2 }' internal/tools/go.mod)
LINT := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/gatehouse/golangci-lint-$(LINT_VERSION)

.PHONY: help run test check battery race fuzz sim bugs linearizable callers hostile run-rounds holds chaos soak client-rounds dist dist-clients chart installed bench bench-tools accuracy proto lint lines fmt

help: ## show what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

run: ## start a server with everything in memory
	go run ./cmd/gatehouse serve

test: ## run all that must pass before a commit, installing what it needs
	./test.sh

# Tests that start no other process and do not wait for long.
QUICK := go list -f '{{.ImportPath}} {{.TestImports}} {{.XTestImports}}' ./... | \
	grep -vE 'redistest|etcdtest|os/exec|client/lease|front/grpc|gatehouse/test/' | cut -d' ' -f1

check: ## look at most of it in less than a minute: vet, the rules, tests without other processes
	go vet ./...
	@packages=$$($(QUICK)); go test -vet=off . $$packages ./internal/zone ./test/lines ./test/oracle

battery: ## run what takes long: race, fuzz, sim, bugs, linearizable, callers, hostile, holds, installed, chaos and soak
	$(MAKE) race
	$(MAKE) fuzz
	$(MAKE) sim
	$(MAKE) bugs
	$(MAKE) linearizable
	$(MAKE) callers
	$(MAKE) hostile
	$(MAKE) run-rounds
	$(MAKE) holds
	$(MAKE) installed
	$(MAKE) chaos
	$(MAKE) soak

# The detector itself ends a program now and then in which much happens in one bubble of virtual time
# (golang/go issue 78156), by a check of its own or a segmentation violation: run that package again.
race: ## run the tests, shuffled and with the race detector
	go test -race -shuffle=on ./...

fuzz: ## run every fuzz function for FUZZTIME, 1m each unless told otherwise
	@packages=$$(go list ./...); \
	for package in $$packages; do \
		listed=$$(go test -list '^Fuzz' $$package); \
		for name in $$(grep '^Fuzz' <<<"$$listed" || true); do \
			echo "fuzz $$package $$name for $(FUZZTIME)"; \
			go test -run '^$$' -fuzz "^$$name$$" -fuzztime $(FUZZTIME) $$package; \
		done; \
	done

sim: ## play SEEDS fleets in virtual time (2000), or the one of SEED, and CHECKS random cases (20000)
	@if [ -n "$(SEED)" ]; then \
		SIM_SEED=$(SEED) SIM_SECONDS=$(SIM_SECONDS) go test -count=1 -v -run '^TestSeeds$$' ./test/sim; exit; fi; \
	base=$(or $(BASE),$$((RANDOM * 32768 + RANDOM))); \
	echo "fleets in virtual time, seeds from $$base on, $(SIM_SECONDS) s of trouble each"; \
	SIM_BASE=$$base SIM_SEEDS=$(or $(SEEDS),2000) SIM_SECONDS=$(SIM_SECONDS) \
		go test -count=1 -v -timeout 2h -run '^TestSeeds$$' ./test/sim | $(SHOW); \
	echo "control and gate in virtual time, $(CHECKS) random cases for each property"; \
	MODEL_SEEDS=1200 go test -count=1 -v -timeout 2h ./control ./gate -rapid.checks=$(CHECKS) | $(SHOW); \
	echo "capacity leases in virtual time, $(or $(SEEDS),200) fresh seeds for each scenario"; \
	SIM_SEEDS=$(or $(SEEDS),200) go test -count=1 -v -timeout 2h ./internal/simulate -rapid.checks=$(CHECKS) | $(SHOW)

bugs: ## plant the bugs of test/mutants, and see that the simulation finds them
	go run ./test/mutants

linearizable: ## look for an order that explains OPERATIONS calls to etcd (50000), and twice as many about grants, and to other stores 460,000 and 100,000 on each
	HISTORIES=10 go test -count=1 -timeout 1h -v -run '^Test(Grant)?Histories$$' \
		./store/memory ./store/cas ./store/cas/redis ./store/disk
	OPERATIONS=$(OPERATIONS) go test -count=1 -timeout 2h -v -run '^TestLinearizable(Grants)?$$' ./store/cas/etcd

callers: ## have ten processes of clients keep the limits of a third party, over three servers on Redis
	TESTED_LONG=1 go test -count=1 -v -run '^TestCallers' ./test/e2e

hostile: ## send ten million requests with hostile names and wrong tokens, and look at memory, log and metrics
	TESTED_LONG=1 go test -count=1 -v -timeout 1h -run '^TestHostileNamesAndTokens$$' ./test/e2e

holds: ## have real processes hold a lock in HOLDS rounds (1000), and as many while they and the server are killed
	HOLDS=$(or $(HOLDS),1000) go test -count=1 -v -timeout 2h -run '^TestHolds$$' ./test/holds

run-rounds: ## run commands under one lock in RUN_ROUNDS rounds (1000), and a fifth as many while all that takes part is killed
	RUN_ROUNDS=$(or $(RUN_ROUNDS),1000) go test -count=1 -v -timeout 2h -run '^TestRunsNeverOverlap$$' ./test/e2e

chaos: ## kill real processes under load, for SECONDS on each STORE (60, all); see docs/chaos.md
	@command -v redis-server >/dev/null || { echo "installing redis-server with apt-get"; \
		apt-get update -q </dev/null; \
		DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends redis-server </dev/null; }
	go run ./test/chaos -store $(STORE) -seconds $(SECONDS) $(CHAOS)

soak: ## attack a server in many ways at once for SECONDS (60), beside honest clients; see docs/soak.md
	go run ./test/soak -seconds $(SECONDS) $(SOAK)

# How many rounds and faults make client-rounds plays for each client, and where make dist-clients writes to.
ROUNDS ?= 1000
FAULTS ?= 200
OUT ?= dist

client-rounds: ## have the Python and JavaScript clients hold a lock in turn for ROUNDS (1000) with FAULTS (200)
	GATEHOUSE_ROUNDS=$(ROUNDS) GATEHOUSE_FAULTS=$(FAULTS) \
		go test -count=1 -v -timeout 2h -run '^TestRounds$$' ./test/clients

# The version is the constant in cmd/gatehouse/main.go. See docs/install.md.
dist: chart ## build all that people install into OUT (dist): archives, deb, rpm, images, chart, Compose, clients; npm is needed
	@rm -f $(OUT)/gatehouse* $(OUT)/SHA256SUMS
	cd internal/tools/dist && CGO_ENABLED=0 go run -trimpath . -out $(abspath $(OUT))
	$(MAKE) dist-clients
	cd $(OUT) && sha256sum gatehouse* >SHA256SUMS && sha256sum --quiet --check SHA256SUMS

chart: ## lint the Helm chart in its three shapes, and with TLS, with Helm's linter, which is built once
	cd internal/tools/helmlint && CGO_ENABLED=0 go run -trimpath . ../../packaging/chart values-redis.yaml values-elected.yaml values-tls.yaml

installed: ## install the deb in a bare Debian and ask its server, and run the image; as root, with a mirror of Debian
	@command -v debootstrap >/dev/null || { echo "installing debootstrap with apt-get"; \
		apt-get update -q </dev/null; \
		DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends debootstrap </dev/null; }
	TESTED_LONG=1 CGO_ENABLED=0 go test -count=1 -v -timeout 30m -run '^Test(Debian|ImageRuns)$$' ./internal/packaging

dist-clients: ## pack the Python client as a wheel and the JavaScript one as a tarball into OUT (dist); npm is needed
	@mkdir -p $(OUT)
	python3 clients/python/build_wheel.py $(OUT)
	npm pack --silent --pack-destination $(OUT) ./clients/js

bench: bench-tools ## measure floors, peers and ours; writes docs/benchmarks.md
	cd test/bench && go run -tags peers . -out ../../docs/benchmarks.md

# nginx and Redis are there to compare with, wrk and redis-benchmark make the load.
bench-tools:
	@for tool in nginx wrk redis-server redis-benchmark; do \
		command -v $$tool >/dev/null && continue; \
		package=$${tool/redis-benchmark/redis-tools}; \
		echo "installing $$package with apt-get"; \
		apt-get update -q </dev/null; \
		DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $$package </dev/null; \
	done

accuracy: ## try all limiters against an exact log; writes docs/accuracy.md
	cd test/bench && go run ./accuracy -out ../../docs/accuracy.md

# protoc is Debian's; its plugins are built from internal/tools/go.mod. Nothing is fetched once those are there.
proto: ## generate the code of doormanpb again, which is committed
	@command -v protoc >/dev/null || { echo "installing protobuf-compiler with apt-get"; \
		apt-get update -q </dev/null; \
		DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends protobuf-compiler </dev/null; }
	@go_plugin=$$(cd internal/tools && go tool -n protoc-gen-go); \
	grpc_plugin=$$(cd internal/tools && go tool -n protoc-gen-go-grpc); \
	protoc --proto_path=internal/front/grpc --plugin=protoc-gen-go=$$go_plugin --plugin=protoc-gen-go-grpc=$$grpc_plugin \
		--go_out=$(PROTO_OUT) --go_opt=paths=source_relative \
		--go-grpc_out=$(PROTO_OUT) --go-grpc_opt=paths=source_relative doormanpb/doorman.proto

lint: $(LINT) ## look for what the compiler lets through
	$(LINT) run ./...

$(LINT):
	@mkdir -p $(dir $@)
	cd internal/tools && go build -o $@ $(LINT_MODULE)/cmd/golangci-lint

lines: ## count the lines of product code, by folder and in total, of the commit AT if it is given
	@go run ./test/lines -at '$(AT)'

fmt: ## format all Go code
	gofmt -s -w .
