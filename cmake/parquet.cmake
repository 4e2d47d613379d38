# The plugin for Parquet files, libtrainctl_parquet.so: apps/parquet/plugin.cc with Arrow C++ from the Python package
# pyarrow. The programs open it when they are to read such a file (lib/data/parquet_plugin.h); nothing links with it.
# Without the package there is no such target, and all else is as before.
set(TRAINCTL_PYARROW "" CACHE PATH "Folder of the Python package pyarrow (third_party/pyarrow.sh); default: the cache's")

set(pyarrow_script ${PROJECT_SOURCE_DIR}/third_party/pyarrow.sh)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${pyarrow_script})
file(STRINGS ${pyarrow_script} pyarrow_version REGEX "^VERSION=")
string(REPLACE "VERSION=" "" pyarrow_version ${pyarrow_version})
string(REGEX MATCH "^([0-9]+)\\.([0-9]+)\\." found ${pyarrow_version})
math(EXPR arrow_so_version "${CMAKE_MATCH_1} * 100 + ${CMAKE_MATCH_2}")
set_source_files_properties(${PROJECT_SOURCE_DIR}/lib/data/parquet_plugin.cc PROPERTIES
  COMPILE_DEFINITIONS "TRAINCTL_PYARROW_VERSION=\"${pyarrow_version}\";TRAINCTL_ARROW_SO_VERSION=\"${arrow_so_version}\""
  SKIP_PRECOMPILE_HEADERS ON)

set(pyarrow ${TRAINCTL_PYARROW})
if(NOT pyarrow)
  execute_process(COMMAND ${pyarrow_script} --installed OUTPUT_VARIABLE pyarrow OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
set(arrow_libraries ${pyarrow}/libparquet.so.${arrow_so_version} ${pyarrow}/libarrow.so.${arrow_so_version})
if(NOT pyarrow)
  message(STATUS "Parquet plugin: not built: no pyarrow ${pyarrow_version} (third_party/pyarrow.sh fetches it)")
elseif(NOT EXISTS ${pyarrow}/libparquet.so.${arrow_so_version})
  message(STATUS "Parquet plugin: not built: ${pyarrow} has no libparquet.so.${arrow_so_version}")
else()
  set(TRAINCTL_PARQUET_PYARROW ${pyarrow})  # what the plugin was built with, for tests
  add_library(trainctl_parquet MODULE ${PROJECT_SOURCE_DIR}/apps/parquet/plugin.cc)
  # Without the sanitizers, which Arrow does not have either: they would see half of what happens to a container.
  target_compile_options(trainctl_parquet PRIVATE -Wall -Wextra -Werror -Wno-unused-parameter)
  target_include_directories(trainctl_parquet PRIVATE ${PROJECT_SOURCE_DIR}/lib)
  target_include_directories(trainctl_parquet SYSTEM PRIVATE ${pyarrow}/include)
  target_link_libraries(trainctl_parquet PRIVATE ${arrow_libraries})
  # An RPATH, not a RUNPATH: it comes before LD_LIBRARY_PATH, where another Arrow may lie.
  target_link_options(trainctl_parquet PRIVATE -Wl,--exclude-libs,ALL -Wl,--disable-new-dtags)
  set_target_properties(trainctl_parquet PROPERTIES CXX_VISIBILITY_PRESET hidden BUILD_RPATH "$ORIGIN;${pyarrow}"
                        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
endif()
