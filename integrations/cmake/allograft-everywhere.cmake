# Gives every executable of a project that knows nothing of allograft its donor:
#
#   cmake -DCMAKE_PROJECT_INCLUDE=/usr/share/cmake/allograft/allograft-everywhere.cmake ...
#
# CMake includes it at the end of each `project()`. From then on `add_executable` calls `allograft_use`.

include_guard(GLOBAL)
find_package(allograft REQUIRED PATHS "${CMAKE_CURRENT_LIST_DIR}" NO_DEFAULT_PATH)

function(add_executable target)
	_add_executable(${target} ${ARGN})
	# A compiler is needed to find out how programs are linked.
	get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
	if(NOT ARGN MATCHES "(^|;)(IMPORTED|ALIAS)(;|$)" AND languages MATCHES "(^|;)(C|CXX)(;|$)")
		allograft_use(${target})
	endif()
endfunction()
