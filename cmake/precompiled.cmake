# Precompiled headers of packages: without them most sources take twice as long. None of ours is among them, so that a
# change to one compiles what includes it and no more. The linter does without: there a file that forgets an include
# is found.

# For modules, rpc (the module that includes gRPC), programs, verbs (programs' sources that include CLI11) and tests.
# Each kind has as many as there are ways to compile it, since a compiler takes one only where the options are the same.
function(trainctl_use_precompiled target kind)
  get_target_property(options ${target} COMPILE_OPTIONS)
  get_target_property(optimized ${target} TRAINCTL_OPTIMIZED)
  set(name ${kind})
  if(options)
    string(APPEND name ${options})
  endif()
  if(optimized)
    string(APPEND name _optimized)
  endif()
  string(MAKE_C_IDENTIFIER precompiled_${name} name)
  if(NOT TARGET ${name})
    add_library(${name} OBJECT ${PROJECT_SOURCE_DIR}/cmake/precompiled.cc)
    target_link_libraries(${name} PRIVATE trainctl_flags trainctl_absl nlohmann_json::nlohmann_json Threads::Threads)
    set(headers <absl/status/statusor.h> <absl/strings/str_cat.h> <absl/strings/str_format.h> <absl/strings/str_join.h>
                <absl/strings/str_split.h> <absl/time/time.h> <absl/types/span.h> <algorithm> <filesystem> <functional>
                <map> <memory> <mutex> <optional> <string> <unordered_map> <vector>)
    # clang loads of it what a source uses; g++ would load all of it for each.
    if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
      list(APPEND headers <nlohmann/json.hpp>)
    endif()
    if(kind STREQUAL "rpc")
      list(APPEND headers <grpcpp/channel.h> <grpcpp/client_context.h> <grpcpp/create_channel.h> <grpcpp/server_builder.h>
                          <grpcpp/server_context.h> <grpcpp/support/client_callback.h> <grpcpp/support/server_callback.h>)
    elseif(kind STREQUAL "tests")
      target_link_libraries(${name} PRIVATE GTest::gmock)
      list(APPEND headers <gmock/gmock.h> <gtest/gtest.h>)
    elseif(kind STREQUAL "verbs")
      target_link_libraries(${name} PRIVATE CLI11::CLI11)
      list(APPEND headers <CLI/CLI.hpp>)
    endif()
    if(NOT kind MATCHES "^(modules|rpc)$")  # programs
      set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
      target_compile_options(${name} PRIVATE -fPIE)
    endif()
    if(options)
      target_compile_options(${name} PRIVATE ${options})
    endif()
    if(optimized)
      set_target_properties(${name} PROPERTIES TRAINCTL_OPTIMIZED ON)
    endif()
    target_precompile_headers(${name} PRIVATE ${headers})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${name})
endfunction()
