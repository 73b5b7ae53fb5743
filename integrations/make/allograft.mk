# For make: `include allograft.mk` in front of the rules. Static programs of musl are then linked by `allograft cc`, and
# carry a donor. docs/toolchains/autotools.md of allograft explains the rest.
#
# ALLOGRAFT        the program; `off` leaves it out
# ALLOGRAFT_FLAGS  its options, such as --donor mimalloc --set purge_delay=0
ALLOGRAFT ?= allograft
ALLOGRAFT_FLAGS ?=

ifneq ($(ALLOGRAFT),off)
ifeq ($(findstring $(ALLOGRAFT) cc,$(CC)),)
# make's own default is no compiler for musl: `allograft cc` takes ALLOGRAFT_CC, or musl-gcc.
ifeq ($(origin CC),default)
CC := $(ALLOGRAFT) cc $(ALLOGRAFT_FLAGS)
else
override CC := $(ALLOGRAFT) cc $(ALLOGRAFT_FLAGS) --cc '$(CC)'
endif
endif
endif
