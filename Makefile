# exnet: TCP/IP over an RDMA fabric, and around it.
#
# Needs Go and a C compiler. Everything made here goes to bin/, which git ignores.
# GO, CC and CFLAGS can be set. V=1 shows the command lines in full.

GO     ?= go
CFLAGS ?= -O2 -g

ifneq (4,$(firstword $(sort 4 $(MAKE_VERSION))))
$(error GNU make $(MAKE_VERSION) is too old: this file needs 4.0 or later)
endif

Q   := $(if $(V),,@)
run  = $(if $(V),,@printf '%-5s %s\n' $(1) $(2);)

programs := $(patsubst cmd/%/,bin/%,$(wildcard cmd/*/))
preload  := $(wildcard directsockets/preload/*.c)
library  := $(if $(preload),bin/libextds.so bin/libextds.a)

MAKEFLAGS += --jobs=$(shell nproc 2>/dev/null || echo 1) $(if $(V),,--no-print-directory)

.DEFAULT_GOAL := all
.PHONY: all run test test-ci test-all test-adverse bench fmt lint man clean help FORCE
.DELETE_ON_ERROR:

all: $(programs) $(library) bin/pump bin/gopump ## build the programs and the library into bin/ (the default)

run: all ## show in a minute what it does on this machine; with root, more of it
	@bin/dsbench demo

test: all bin/suite ## what a change must pass: some ten minutes
	$(suite)

test-ci: all bin/suite ## what make test leaves out, sampled by the commit
	$(suite) -ci

test-all: all bin/suite ## everything, with long matrices, seeds, soaks and fuzzing: hours
	$(suite) -all

test-adverse: all bin/suite ## tests on one CPU, beside busy loops, with half a CPU, with slow wake-ups; CONDITIONS=one-cpu,busy,half-cpu,slow-wakes and PACKAGES choose
	$(suite) -adverse $(or $(CONDITIONS),all) $(PACKAGES)

# Its tests take the library that is here.
suite = @EXN_LIBEXTDS=$(CURDIR)/bin/libextds.so bin/suite

# What the first run measures is the baseline of those to come; git ignores it.
bench: all ## measure everything, and compare with .cache/bench (remove it to start anew)
	$(GO) test -run='^$$' -bench=. -benchmem ./...
	@mkdir -p .cache/bench; worse=0; \
	for what in standard fabric exn "ds --preload" "ds --go" apps; do \
		name=$$(echo "$$what" | sed 's/ --preload//; s/ --/-/'); baseline=.cache/bench/$$name.json; report=dsbench-report/$$name; \
		echo "== dsbench $$what"; bin/dsbench $$what --out $$report || exit; \
		if [ -f $$baseline ]; then bin/dsbench compare $$baseline $$report/results.json || worse=$$?; \
		else cp $$report/results.json $$baseline; fi; \
	done; exit $$worse

fmt: ## format the sources
	gofmt -w .

lint: bin/suite ## gofmt, go vet and staticcheck only
	@bin/suite -lint

man: $(programs) ## write the manual pages of all commands to bin/man/man1; man -M bin/man exn-tun shows one
	$(Q)rm -rf bin/man; for p in exn-tun dsbench; do bin/$$p help --man bin/man/man1 || exit; done

clean: ## remove bin/; the cache of Debian packages stays
	rm -rf bin

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' Makefile | expand -t 14

# Missing tools are named before anything is tried with them.
have-go = @command -v $(firstword $(GO)) >/dev/null || { echo "make: no $(firstword $(GO)) in PATH: install Go 1.26 or later (https://go.dev/dl), or set GO=" >&2; exit 1; }
have-cc = @command -v $(firstword $(CC)) >/dev/null || { echo "make: no C compiler $(firstword $(CC)): install gcc and libc6-dev, or set CC=; without it there is no bin/libextds.so" >&2; exit 1; }

# Go programs. They are built again when a file has changed that can go into one: the go command
# would know better, but takes a second for each to say that nothing has. A program that comes out
# the same keeps its time, for cached results of tests depend on it; a stamp beside it has the new.
sources := go.mod go.sum $(shell find arp cmd directsockets exn exteth fabric internal mtu multicast napi test -type f \
	! -name '*_test.go' ! -name '*.[ch]' ! -name '*.md' ! -path '*/testdata/*' 2>/dev/null)

go-programs := $(programs) bin/gopump bin/suite

bin/%: package = ./cmd/$*
bin/gopump bin/.gopump.made: package = ./cmd/dsbench/gopump
bin/suite bin/.suite.made: package = ./test/suite

$(go-programs): bin/%: bin/.%.made ;

bin/.%.made: $(sources)
	$(have-go)
	@mkdir -p $(@D)
	$(call run,GO,$*) $(GO) build -trimpath -o bin/$*.new $(package)
	$(Q)if cmp -s bin/$*.new bin/$*; then rm bin/$*.new; else mv bin/$*.new bin/$*; fi; touch $@

# What another compiler than ours warns of must not keep anybody from building.
warnings = -Wall -Wextra $(if $(CI),-Werror)

# Variables are sorted by alignment, which keeps the small ones together, apart from the tables:
# each page that a forked child writes to is copied. Calls of the library's own functions do not
# go by way of another library's of the same name. Fortified, which is some compilers' default, it
# would call what musl does not have.
compile = $(CC) -std=c11 -D_GNU_SOURCE $(warnings) -Wframe-larger-than=2500 -fdata-sections -fPIC -fvisibility=hidden -pthread -U_FORTIFY_SOURCE $(CFLAGS)

# The linker optimizes the files that each call of a program goes through, if it can: a short
# connection takes 5 % fewer instructions then (callgrind). All files would make it 8 %, and each
# build twice as long. In one part, for the versions of functions that real.h asks for are lost in
# several.
hot   := conn engage family files hook_fd hook_io hook_wait lane_read lane_shm lock process real receive sleep \
	spin stream symbol transmit worth board
whole := -flto -flto-partition=none
whole := $(shell $(CC) -shared -fPIC $(whole) -x c /dev/null -o /dev/null 2>/dev/null && echo $(whole))

shared := $(patsubst directsockets/preload/%.c,bin/obj/%.o,$(preload))
static := $(patsubst directsockets/preload/%.c,bin/obj/static/%.o,$(preload))
-include $(wildcard bin/obj/*.d bin/obj/static/*.d)

$(hot:%=bin/obj/%.o): optimize = $(whole)
$(static): optimize = -DEXTDS_STATIC

define compile-object
	@mkdir -p $(@D)
	$(call run,CC,$(@:bin/obj/%.o=%)) $(compile) $(optimize) -MMD -MP -c -o $@ $<
endef

bin/obj/static/%.o: directsockets/preload/%.c bin/obj/flags
	$(compile-object)

bin/obj/%.o: directsockets/preload/%.c bin/obj/flags
	$(compile-object)

# All is compiled again after a change of the compiler or its flags.
flags := $(compile) $(whole) $(hot)
ifneq ($(flags),$(file <bin/obj/flags))
bin/obj/flags: FORCE
endif
bin/obj/flags:
	$(have-cc)
	@mkdir -p $(@D) && printf '%s\n' '$(flags)' >$@

bin/libextds.so: $(shared)
	$(call run,LINK,$(@F)) $(compile) $(whole) -shared -Wl,-z,now -Wl,-Bsymbolic-functions -Wl,--sort-section=alignment -o $@ $(shared) -ldl

# The same for static programs, which are linked with -Wl,@bin/libextds.wrap: what the shared one
# exports as read is __wrap_read here, and nothing else is seen. Calls of __read are the C library's
# own there, and so are dlopen and dlsym.
bin/libextds.a: bin/libextds.so $(static)
	$(call run,LINK,$(@F)) $(compile) -r -nostdlib -o bin/obj/libextds.o $(static)
	$(Q)nm -D --defined-only $< | awk '$$3 !~ /^dl(open|sym)$$/ {at[$$3] = $$1} END {for (n in at) if (n !~ /^__/ || at[n] != at[substr(n, 3)]) print "--wrap=" n}' | sort >bin/libextds.wrap
	$(Q)sed 's/--wrap=\(.*\)/\1 __wrap_\1/' bin/libextds.wrap >bin/obj/names
	$(Q)objcopy --redefine-syms=bin/obj/names bin/obj/libextds.o
	$(Q)objcopy --wildcard --keep-global-symbol='__wrap_*' bin/obj/libextds.o
	$(Q)rm -f $@ && ar -crs $@ bin/obj/libextds.o

# What the demonstration sends over all paths.
bin/pump: $(wildcard directsockets/preload/pump/*.[ch]) directsockets/preload/exnet.h bin/obj/flags
	@mkdir -p $(@D)
	$(call run,CC,$(@F)) $(CC) -std=c11 $(warnings) -pthread $(CFLAGS) -o $@ $(filter %.c,$^)
