# A thin front: cmake does the work. `make help` lists the targets.
BUILD        ?= build
PREFIX       ?= /usr/local
JOBS         ?= $(shell nproc 2>/dev/null || echo 1)
FUZZ_SECONDS ?= 60
DEMO         ?= -P 2 -t 2 -b 8 -e 64M -f 2
CMAKE_FLAGS  ?=

export JOBS CMAKE_FLAGS FUZZ_SECONDS

.PHONY: all demo demo-dgx test check bench bench-full lint format fuzz install uninstall deb clean help

all: ## build the library and the perf programs into build/ (default)
	@scripts/build $(BUILD) || { TUTTI_NO_INSTALL=1 scripts/deps build; exit 1; }

demo: ## build, then all-reduce among 4 ranks in 2 processes, 8 bytes to 64 MiB
	@scripts/deps demo
	@TUTTI_QUIET=1 scripts/build $(BUILD)
	$(BUILD)/bin/all_reduce_perf $(DEMO)

demo-dgx: ## this computer as a DGX H100, then as two of them: 8 and 16 ranks on their channels (MACHINE: another file)
	@scripts/deps demo
	@TUTTI_QUIET=1 scripts/build $(BUILD)
	@scripts/demo_machine $(BUILD) $(MACHINE)

test: ## build, then run all tests
	@scripts/deps test
	@scripts/build $(BUILD)
	@scripts/run_tests test $(BUILD)

check: ## all tests under AddressSanitizer + UndefinedBehaviorSanitizer, and under ThreadSanitizer
	@scripts/deps check
	@scripts/check_sanitizers

bench: ## measure side by side with what else is installed (bench/README.md)
	@scripts/deps demo
	@scripts/build $(BUILD)
	@cmake --build $(BUILD) --target bench_programs
	@bench/run.sh $(BUILD)

bench-full: ## the whole comparison, in parts: every peer and setting, 8 B to 256 MiB, limits, means, pictures (bench/full/README.md)
	@scripts/deps demo
	@scripts/build $(BUILD)
	@bench/full.sh $(BUILD)

lint: ## layers, sizes, headers, exports, notices, format, cppcheck
	@scripts/deps lint
	@scripts/build $(BUILD)
	@scripts/lint $(BUILD)

format: ## rewrite the sources with clang-format
	@scripts/check_format --fix

fuzz: ## run each fuzz program for FUZZ_SECONDS (60) seconds with sanitizers
	@scripts/deps fuzz
	@scripts/fuzz build/fuzz $(FUZZ_SECONDS)

install: all ## install under PREFIX (/usr/local); DESTDIR is honoured
	cmake --install $(BUILD) --prefix $(PREFIX)
	@echo "install: tutti-tune --machine measures this computer for the library, in a tenth of a second (tutti-tune(1))"

uninstall: ## remove what install puts under PREFIX (and DESTDIR)
	@scripts/uninstall $(BUILD) $(PREFIX)

deb: ## Debian packages (library, dev, tools, one per MPI) into BUILD/deb
	@scripts/deps deb
	@scripts/build $(BUILD)
	cd $(BUILD) && cpack -B deb

clean: ## remove the build directories
	rm -rf build build-asan build-tsan

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile
	@echo "  variables: BUILD PREFIX DESTDIR JOBS FUZZ_SECONDS DEMO MACHINE CMAKE_FLAGS (for example CMAKE_FLAGS=-DTUTTI_WERROR=ON)"
