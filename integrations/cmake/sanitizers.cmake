# Fails if `flags` name a sanitizer that brings a malloc of its own. `target`: the executable. Included when CMake
# configures, and run with -P before the executable is linked.

if("${flags}" MATCHES "-fsanitize=[a-z,-]*(address|thread|memory|leak)")
	message(FATAL_ERROR "allograft_use(${target}): the flags have ${CMAKE_MATCH_0}, and that sanitizer finds errors by a "
		"malloc of its own, which a donor would replace\nhelp: configure builds with sanitizers with -DALLOGRAFT_DONOR=OFF")
endif()
