# What each target promises stands in CONTRIBUTING.md, "What make does".
.PHONY: build linux check test test-long test-vm soak demo bench bench-launch fuzz fuzz-long test-others cross release escape clean

GO ?= go

# The program that is shipped carries the whole one and starts it on demand:
# cmd/pccrun/launcher_linux.go says why. That one carries what goes up to clouds.
build:
	@echo "building bin/pccrun: seconds, or some minutes while Go's cache is cold"
	@CGO_ENABLED=0 GOOS=linux $(GO) build -tags launcher,place -trimpath -ldflags '-s -w' -o bin/place ./cmd/pccrun
	@GOOS= GOARCH= $(GO) run cmd/pccrun/compress.go bin/place cmd/pccrun/place.gz
	@CGO_ENABLED=0 $(GO) build -tags carries -trimpath -ldflags '-s -w' -o cmd/pccrun/whole.bin ./cmd/pccrun
	@echo "half is built"
	@CGO_ENABLED=0 $(GO) build -tags launcher -trimpath -ldflags '-s -w -E github.com/pccrun/pccrun/internal/start.entry' -o bin/pccrun ./cmd/pccrun
	@echo "bin/pccrun is built: $$(du -h bin/pccrun | cut -f1)"

# The program for sandboxes of another processor, or for a machine that is no Linux: it goes beside pccrun.
linux:
	GOOS=linux GOARCH=amd64 CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o bin/pccrun-linux-amd64 ./cmd/pccrun
	GOOS=linux GOARCH=arm64 CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o bin/pccrun-linux-arm64 ./cmd/pccrun

check: build
	$(GO) run ./test/run -check

test: build
	$(GO) run ./test/run

test-long: build
	$(GO) run ./test/run -long
	$(GO) run ./test/run -fuzz 30s
	$(GO) run ./test/soak
	$(GO) run ./test/vm -write test/vm/machines.md

test-vm:
	$(GO) run ./test/vm -write test/vm/machines.md

soak: build
	$(GO) run ./test/soak

demo: build
	$(GO) run ./test/agent/demo

bench: build
	$(GO) run ./test/bench

BASE ?= HEAD~1
bench-launch: build
	$(GO) run ./test/bench -base $(BASE) -rounds 200

fuzz:
	$(GO) run ./test/run -fuzz 30s

HOURS ?= 8
fuzz-long:
	$(GO) run ./test/run -fuzz-all $(HOURS)h -write test/run/fuzzed.md

test-others: build
	$(GO) run ./test/others $(SUITE)

escape: build
	bin/pccrun escape

cross:
	GOOS=linux GOARCH=amd64 CGO_ENABLED=0 $(GO) build ./...
	GOOS=linux GOARCH=arm64 CGO_ENABLED=0 $(GO) build ./...
	GOOS=darwin GOARCH=arm64 CGO_ENABLED=0 $(GO) build ./...
	GOOS=windows GOARCH=amd64 CGO_ENABLED=0 $(GO) build ./...

# What a release consists of, for every system, in dist: VERSION=1.2.3.
release:
	cd release && $(GO) run . -version "$(VERSION)"

clean:
	rm -rf bin dist .cache cmd/pccrun/whole.bin cmd/pccrun/place.gz
