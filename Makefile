# exnet: TCP/IP over an RDMA fabric, and around it.
#
# Needs Go and a C compiler. Everything made here goes to bin/, which git
# ignores. GO, CC and CFLAGS can be set.

GO     ?= go
CFLAGS ?= -O2 -g

programs := $(patsubst cmd/%/,bin/%,$(wildcard cmd/*/))
preload  := $(wildcard directsockets/preload/*.c)
library  := $(if $(preload),bin/libextds.so bin/libextds.a)

MAKEFLAGS += --jobs=$(shell nproc 2>/dev/null || echo 1)

.DEFAULT_GOAL := all
.PHONY: all run test test-all test-adverse bench fmt lint clean help FORCE

all: $(programs) $(library) bin/pump bin/gopump ## build the programs and the library into bin/ (the default)

run: all ## show in a minute what it does on this machine; with root, more of it
	@bin/dsbench demo

test: all bin/suite ## what a change must pass, in less than a quarter of an hour
	$(suite)

test-all: all bin/suite ## the same with long matrices, seeds, soaks and fuzzing
	$(suite) -long

test-adverse: all bin/suite ## tests on one CPU, beside busy loops, with half a CPU, with slow wake-ups; CONDITIONS=one-cpu,busy,half-cpu,slow-wakes and PACKAGES choose
	$(suite) -adverse $(or $(CONDITIONS),all) $(PACKAGES)

# Its tests take the library that is here.
suite = EXN_LIBEXTDS=$(CURDIR)/bin/libextds.so bin/suite

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
	bin/suite -lint

clean: ## remove bin/; the cache of Debian packages stays
	rm -rf bin

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' Makefile | expand -t 10

# What is out of date, the go command knows best, but it writes the file each
# time. One that is the same keeps its time: results of tests depend on it.
bin/gopump: package := ./cmd/dsbench/gopump
$(programs) bin/gopump: bin/%: FORCE
	$(GO) build -trimpath -o $@.new $(or $(package),./cmd/$*)
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi

bin/suite: FORCE
	$(GO) build -o $@ ./test/suite

# What another compiler than ours warns of must not keep anybody from building.
warnings = -Wall -Wextra $(if $(CI),-Werror)

# In one go: it takes seconds, and most sources need most headers. Variables are sorted by
# alignment, which keeps the small ones together, apart from the tables: each page that a
# forked child writes to is copied. Its calls of its own functions do not go by way of another
# library's of the same name. Fortified, which is some compilers' default, it would call what musl does not have.
compile = $(CC) -std=c11 -D_GNU_SOURCE $(warnings) -Wframe-larger-than=2500 -fdata-sections -fPIC -fvisibility=hidden -pthread -U_FORTIFY_SOURCE $(CFLAGS)

# The linker optimizes, too, if it can: a third of the instructions of a short connection less. In one
# part, for the versions of functions that real.h asks for are lost in several.
whole := -flto -flto-partition=none
whole := $(shell $(CC) -shared -fPIC $(whole) -x c /dev/null -o /dev/null 2>/dev/null && echo $(whole))

bin/libextds.so: $(preload) $(wildcard directsockets/preload/*.h)
	@mkdir -p $(@D)
	$(compile) $(whole) -shared -Wl,-z,now -Wl,-Bsymbolic-functions -Wl,--sort-section=alignment -o $@ $(preload) -ldl

# The same for static programs, which are linked with -Wl,@bin/libextds.wrap: what the
# shared one exports as read is __wrap_read here, and nothing else is seen. Calls of __read
# are the C library's own there, and so are dlopen and dlsym.
bin/libextds.o: $(preload) $(wildcard directsockets/preload/*.h)
	@mkdir -p $(@D)
	$(compile) -DEXTDS_STATIC -r -nostdlib -o $@ $(preload)

bin/libextds.a: bin/libextds.so bin/libextds.o
	nm -D --defined-only $< | awk '$$3 !~ /^dl(open|sym)$$/ {at[$$3] = $$1} END {for (n in at) if (n !~ /^__/ || at[n] != at[substr(n, 3)]) print "--wrap=" n}' | sort >bin/libextds.wrap
	sed 's/--wrap=\(.*\)/\1 __wrap_\1/' bin/libextds.wrap >bin/libextds.names
	objcopy --redefine-syms=bin/libextds.names bin/libextds.o
	objcopy --wildcard --keep-global-symbol='__wrap_*' bin/libextds.o
	rm -f $@ && ar -crs $@ bin/libextds.o && rm bin/libextds.names

# What the demonstration sends over all paths.
bin/pump: $(wildcard directsockets/preload/pump/*.[ch]) directsockets/preload/exnet.h
	@mkdir -p $(@D)
	$(CC) -std=c11 $(warnings) -pthread $(CFLAGS) -o $@ $(filter %.c,$^)
