# One symbol would keep our programs, when GCC 12 compiles them, from running with the C++ library of GCC 11, as RHEL 9
# and its relatives have it; the libraries of Debian 12 that they need do run there. Each program takes its older version.
function(trainctl_use_older_symbols target)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64" AND NOT TRAINCTL_SANITIZE)
    target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/older_symbols.cc)
    set_source_files_properties(${PROJECT_SOURCE_DIR}/cmake/older_symbols.cc PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
    target_link_options(${target} PRIVATE -Wl,--wrap=_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE)
  endif()
endfunction()
