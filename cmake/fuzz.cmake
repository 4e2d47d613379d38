# libFuzzer targets: tests/fuzz/<name>_fuzz.cc becomes <name>_fuzz and the ctest entry fuzz/<name>, which
# looks for new inputs for a short while, starting from tests/fuzz/corpus/<name>/ where there is one (plans: from the recipes that are shipped).
if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang" OR NOT TRAINCTL_SANITIZE)
  message(FATAL_ERROR "TRAINCTL_FUZZ needs -DCMAKE_CXX_COMPILER=clang++ -DTRAINCTL_SANITIZE=address,undefined")
endif()
set(TRAINCTL_FUZZ_SECONDS 3 CACHE STRING "How long each fuzz target runs under ctest")

file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/fuzz/*_fuzz.cc)
foreach(source IN LISTS sources)
  get_filename_component(name ${source} NAME_WE)
  string(REGEX REPLACE "_fuzz$" "" subject ${name})
  add_executable(${name} ${source})
  target_link_libraries(${name} PRIVATE trainctl_recipe trainctl_data trainctl_checkpoint trainctl_published trainctl_schedule
                        trainctl_planner trainctl_run trainctl_telemetry trainctl_rendezvous trainctl_rpc trainctl_tokenizer
                        trainctl_monitor)
  target_compile_options(${name} PRIVATE -fsanitize=fuzzer-no-link)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  if(TARGET every_test)
    add_dependencies(every_test ${name})
  endif()
  set(found ${CMAKE_BINARY_DIR}/corpus/${subject})
  file(MAKE_DIRECTORY ${found})
  set(seeds ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${subject})
  if(subject STREQUAL "plan")
    set(seeds ${PROJECT_SOURCE_DIR}/recipes/plan)
  endif()
  if(NOT IS_DIRECTORY ${seeds})
    set(seeds)
  endif()
  add_test(NAME fuzz/${subject}
           COMMAND ${name} -max_total_time=${TRAINCTL_FUZZ_SECONDS} -timeout=25 -rss_limit_mb=2048 -print_final_stats=1
                   -artifact_prefix=${CMAKE_BINARY_DIR}/${subject}- ${found} ${seeds})
  math(EXPR limit "${TRAINCTL_FUZZ_SECONDS} * 10 + 60")
  set_tests_properties(fuzz/${subject} PROPERTIES TIMEOUT ${limit})
endforeach()
