# One rule for every module: sources are lib/<module>/*.cc, modules it may use come from lib/DEPS,
# packages from the small table below.

find_package(Threads REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(spdlog REQUIRED)
find_package(ZLIB REQUIRED)
find_library(TRAINCTL_ZSTD zstd REQUIRED)
include(cmake/archives.cmake)
include(cmake/precompiled.cmake)
include(cmake/older_symbols.cmake)

add_library(trainctl_flags INTERFACE)
target_compile_options(trainctl_flags INTERFACE -Wall -Wextra -Werror -Wno-unused-parameter -Wno-missing-field-initializers -fno-omit-frame-pointer
  -pthread)
# What a program says of a place in its sources does not depend on where they were compiled.
target_compile_options(trainctl_flags INTERFACE -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)
# g++ 12 takes the moves of an absl::InlinedVector for reads of what was never written, and warns of code of
# std::string's that it cannot follow; from a precompiled header it does not know that this is not ours.
target_compile_options(trainctl_flags INTERFACE
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized> $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-array-bounds>
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-stringop-overflow> $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-stringop-overread>
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict>)
# g++ 13 takes any reference that a function of a temporary argument returns for a dangling one.
target_compile_options(trainctl_flags INTERFACE
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_GREATER_EQUAL:$<CXX_COMPILER_VERSION>,13>>:-Wno-dangling-reference>)
target_include_directories(trainctl_flags INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/lib)
if(TRAINCTL_SANITIZE)
  # Instrumented code is most of a cold build, so only what runs for long is optimized, and only modules that read what
  # others wrote tell fuzzers where they have been. Races show without optimization as well. Of UBSan's checks, those
  # before each access to memory are a fifth of the time to compile: null pointers end a test without them, and
  # -Wcast-align finds the casts that could misalign a pointer.
  target_compile_options(trainctl_flags INTERFACE -fsanitize=${TRAINCTL_SANITIZE} -fno-sanitize-recover=all
    $<IF:$<BOOL:$<TARGET_PROPERTY:TRAINCTL_OPTIMIZED>>,-O1,-O0>)
  if(TRAINCTL_SANITIZE MATCHES "undefined")
    target_compile_options(trainctl_flags INTERFACE -fno-sanitize=null,alignment,object-size,vptr -Wcast-align)
  endif()
  target_link_options(trainctl_flags INTERFACE -fsanitize=${TRAINCTL_SANITIZE})
endif()
# The linker is the compiler's own. mold 1.10, the one that Debian 12 has, links faster by seconds in all, but lays
# out some programs so that they do not start (.tbss at the end of a page), and runs for ever on others.

# What tests spend their time in; the others only read, write and decide.
set(TRAINCTL_COMPUTING_MODULES base kernels optim model layout schedule simulate planner frameworks tokenizer data
    checkpoint)
# What fuzz targets look into.
set(TRAINCTL_FUZZED_MODULES base checkpoint cluster data model monitor plan published recipe rpc run telemetry tokenizer)

# Packages that a module needs beside Abseil and nlohmann-json.
set(TRAINCTL_PACKAGES_recipe tomlplusplus)
set(TRAINCTL_PACKAGES_rpc trainctl_proto)
set(TRAINCTL_PACKAGES_data xxhash)
set(TRAINCTL_PACKAGES_checkpoint xxhash)
# Seen by the module's own sources alone.
set(TRAINCTL_PRIVATE_PACKAGES_base spdlog::spdlog)
set(TRAINCTL_PRIVATE_PACKAGES_data ZLIB::ZLIB zstd)
set(TRAINCTL_PRIVATE_PACKAGES_rpc trainctl_openssl)
set(TRAINCTL_PRIVATE_PACKAGES_launcher xxhash)
set(TRAINCTL_PRIVATE_PACKAGES_schedule xxhash)
set(TRAINCTL_PRIVATE_PACKAGES_tokenizer pcre2-8 utf8proc)

add_library(tomlplusplus INTERFACE)
target_compile_definitions(tomlplusplus INTERFACE TOML_EXCEPTIONS=0)
add_library(zstd INTERFACE)
target_link_libraries(zstd INTERFACE ${TRAINCTL_ZSTD})
add_library(xxhash INTERFACE)
target_compile_definitions(xxhash INTERFACE XXH_INLINE_ALL)

file(STRINGS ${PROJECT_SOURCE_DIR}/lib/DEPS deps_lines)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/lib/DEPS)
set(TRAINCTL_PLAIN_MODULES)
set(TRAINCTL_TORCH_MODULES)
set(below_line FALSE)
foreach(line IN LISTS deps_lines)
  if(line MATCHES "^----")
    set(below_line TRUE)
  elseif(line MATCHES "^([a-z_]+):(.*)$")
    set(module ${CMAKE_MATCH_1})
    string(STRIP "${CMAKE_MATCH_2}" deps)
    string(REPLACE " " ";" TRAINCTL_DEPS_${module} "${deps}")
    if(below_line)
      list(APPEND TRAINCTL_TORCH_MODULES ${module})
    else()
      list(APPEND TRAINCTL_PLAIN_MODULES ${module})
    endif()
  endif()
endforeach()

function(trainctl_module_dir module out)
  if(module STREQUAL "kernels")
    set(${out} ${PROJECT_SOURCE_DIR}/kernels PARENT_SCOPE)
  else()
    set(${out} ${PROJECT_SOURCE_DIR}/lib/${module} PARENT_SCOPE)
  endif()
endfunction()

# What a page is made of: lib/<module>/page.css becomes `const char kPageCss[]` in the module's namespace.
function(trainctl_page_texts module dir out)
  file(GLOB texts CONFIGURE_DEPENDS ${dir}/*.html ${dir}/*.css ${dir}/*.js)
  set(generated)
  foreach(text IN LISTS texts)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${text})
    get_filename_component(file ${text} NAME)
    set(constant k)
    string(REGEX MATCHALL "[a-z]+" words ${file})
    foreach(word IN LISTS words)
      string(SUBSTRING ${word} 0 1 first)
      string(SUBSTRING ${word} 1 -1 rest)
      string(TOUPPER ${first} first)
      string(APPEND constant ${first}${rest})
    endforeach()
    file(READ ${text} content)
    set(source ${CMAKE_BINARY_DIR}/generated/${module}/${file}.cc)
    file(CONFIGURE OUTPUT ${source} CONTENT [[
// Made from @file@.
namespace trainctl::@module@ {
extern const char @constant@[];
const char @constant@[] = R"text(@content@)text";
}
]] @ONLY)
    set_source_files_properties(${source} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
    list(APPEND generated ${source})
  endforeach()
  set(${out} ${generated} PARENT_SCOPE)
endfunction()

function(trainctl_add_module module)
  trainctl_module_dir(${module} dir)
  file(GLOB sources CONFIGURE_DEPENDS ${dir}/*.cc)
  set(libs trainctl_flags trainctl_absl nlohmann_json::nlohmann_json Threads::Threads)
  foreach(dep IN LISTS TRAINCTL_DEPS_${module})
    list(APPEND libs trainctl_${dep})
  endforeach()
  list(APPEND libs ${TRAINCTL_PACKAGES_${module}})
  if(NOT sources)
    add_library(trainctl_${module} INTERFACE)
    target_link_libraries(trainctl_${module} INTERFACE ${libs})
    return()
  endif()
  trainctl_page_texts(${module} ${dir} texts)
  add_library(trainctl_${module} STATIC ${sources} ${texts})
  if(module IN_LIST TRAINCTL_COMPUTING_MODULES AND TRAINCTL_SANITIZE MATCHES "address")
    set_target_properties(trainctl_${module} PROPERTIES TRAINCTL_OPTIMIZED ON)
  endif()
  if(TRAINCTL_FUZZ AND module IN_LIST TRAINCTL_FUZZED_MODULES)
    target_compile_options(trainctl_${module} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
  target_link_libraries(trainctl_${module} PUBLIC ${libs} PRIVATE ${TRAINCTL_PRIVATE_PACKAGES_${module}})
  if(module IN_LIST TRAINCTL_TORCH_MODULES)
    trainctl_use_libtorch(trainctl_${module})
  elseif(module STREQUAL "rpc")
    trainctl_use_precompiled(trainctl_${module} rpc)
  else()
    trainctl_use_precompiled(trainctl_${module} modules)
  endif()
  # Headers take longer than what most sources contain. The linter looks at each source.
  # Operators have functions of the same names, and the other two have fields whose types are of one source.
  file(GLOB operators CONFIGURE_DEPENDS ${dir}/operator_*.cc)
  set_source_files_properties(${operators} ${dir}/step_hash.cc ${dir}/job_authority.cc
    PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  if(NOT CMAKE_DISABLE_PRECOMPILE_HEADERS)
    set_target_properties(trainctl_${module} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 5)
  endif()
endfunction()

# The CPU kernels are compiled once per instruction set; kernels/cpu.cc chooses at run time.
set(kernel_flags "-O3 -fopenmp-simd -fno-math-errno -fno-trapping-math")
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # It warns of each loop that it leaves scalar, which under the sanitizers is most of them.
  string(APPEND kernel_flags " -Wno-pass-failed")
endif()
set(kernel_flags_baseline "${kernel_flags}")
set(kernel_flags_avx2 "${kernel_flags} -mavx2 -mfma")
set(kernel_flags_avx512 "${kernel_flags} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mprefer-vector-width=512")
foreach(isa baseline avx2 avx512)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" OR isa STREQUAL "baseline")
    set_source_files_properties(${PROJECT_SOURCE_DIR}/kernels/cpu_${isa}.cc PROPERTIES
      COMPILE_FLAGS "${kernel_flags_${isa}}" SKIP_PRECOMPILE_HEADERS ON)
  else()
    set_source_files_properties(${PROJECT_SOURCE_DIR}/kernels/cpu_${isa}.cc PROPERTIES HEADER_FILE_ONLY ON)
  endif()
endforeach()
