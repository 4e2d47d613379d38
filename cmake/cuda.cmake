# The GPU's operators (kernels/cuda/*.cu) as the static library trainctl_cuda_kernels, for devices of compute
# capability 8.0 and later: code for sm_80 and sm_90a, and PTX that the driver translates for newer devices. Where
# no fitting nvcc is, there is no such target and TRAINCTL_CUDA_MISSING says why. Who links it links CUDA's runtime
# (libcudart) and defines CurrentCudaStream().
#
# nvcc is called by plain commands: enable_language(CUDA) takes seconds to configure and looks for a device.
set(TRAINCTL_NVCC "" CACHE FILEPATH "nvcc of LibTorch's CUDA version; default: $CUDACXX, PATH, /usr/local/cuda/bin")
set(TRAINCTL_CUDA_MAJOR 13 CACHE STRING "Major version of the CUDA that LibTorch was built with")

set(TRAINCTL_CUDA_MISSING)
set(nvcc ${TRAINCTL_NVCC})
if(NOT nvcc AND DEFINED ENV{CUDACXX})
  set(nvcc $ENV{CUDACXX})
endif()
if(NOT nvcc)
  find_program(TRAINCTL_FOUND_NVCC nvcc HINTS /usr/local/cuda/bin)
  mark_as_advanced(TRAINCTL_FOUND_NVCC)
  set(nvcc ${TRAINCTL_FOUND_NVCC})
endif()
if(NOT nvcc)
  set(TRAINCTL_CUDA_MISSING "no nvcc: none in TRAINCTL_NVCC, CUDACXX, PATH or /usr/local/cuda/bin")
else()
  execute_process(COMMAND ${nvcc} --version OUTPUT_VARIABLE text RESULT_VARIABLE result ERROR_QUIET)
  if(NOT result EQUAL 0 OR NOT text MATCHES "release ([0-9]+)\\.([0-9]+)")
    set(TRAINCTL_CUDA_MISSING "'${nvcc} --version' did not answer with a version (${result})")
  elseif(NOT CMAKE_MATCH_1 EQUAL TRAINCTL_CUDA_MAJOR)
    set(TRAINCTL_CUDA_MISSING "${nvcc} is of CUDA ${CMAKE_MATCH_1}.${CMAKE_MATCH_2}, LibTorch of CUDA ${TRAINCTL_CUDA_MAJOR}; \
name another with -DTRAINCTL_NVCC=FILE")
  else()
    set(TRAINCTL_CUDA_VERSION ${CMAKE_MATCH_1}.${CMAKE_MATCH_2})
  endif()
endif()

if(TRAINCTL_CUDA_MISSING)
  message(STATUS "CUDA plugin: not built: ${TRAINCTL_CUDA_MISSING}")
else()
  set(TRAINCTL_CUDA_NVCC ${nvcc})
  message(STATUS "CUDA operators: nvcc ${TRAINCTL_CUDA_VERSION} (${nvcc})")
  set(nvcc_flags -std=c++20 -O3 -lineinfo -I${PROJECT_SOURCE_DIR} -I${PROJECT_SOURCE_DIR}/lib
                 -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90a,code=sm_90a
                 -gencode arch=compute_90,code=compute_90
                 -Werror all-warnings -Xcompiler -fPIC,-Wall,-Wextra,-Wno-unused-parameter)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(APPEND nvcc_flags -ccbin ${CMAKE_CXX_COMPILER})
  endif()
  file(GLOB cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/cuda/*.cu)
  set(cuda_objects)
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/cuda)
  foreach(source IN LISTS cuda_sources)
    get_filename_component(file ${source} NAME)
    set(object ${CMAKE_BINARY_DIR}/cuda/${file}.o)
    # What ptxas says of each kernel is kept beside the object, for the test cuda/report.
    add_custom_command(OUTPUT ${object} BYPRODUCTS ${CMAKE_BINARY_DIR}/cuda/${file}.ptxas
      COMMAND ${PROJECT_SOURCE_DIR}/cmake/with_report.sh ${CMAKE_BINARY_DIR}/cuda/${file}.ptxas
              ${CMAKE_CXX_COMPILER_LAUNCHER} ${nvcc} ${nvcc_flags} -Xptxas -v -MD -MF ${object}.d -c ${source} -o ${object}
      DEPENDS ${source} DEPFILE ${object}.d COMMENT "nvcc kernels/cuda/${file}" VERBATIM)
    list(APPEND cuda_objects ${object})
  endforeach()
  add_library(trainctl_cuda_kernels STATIC EXCLUDE_FROM_ALL ${cuda_objects})
  set_target_properties(trainctl_cuda_kernels PROPERTIES LINKER_LANGUAGE CXX)
  target_link_libraries(trainctl_cuda_kernels INTERFACE trainctl_flags)
endif()

# The plugin: the operators, LibTorch's streams and memory, NCCL. The worker opens it (lib/device); nothing links
# with it. On a machine without a GPU it is compiled and linked like everywhere: what LibTorch's CUDA part needs in
# turn (cuDNN, NVSHMEM ...) need not be there.
if(NOT TRAINCTL_CUDA_MISSING)
  get_filename_component(toolkit ${nvcc} DIRECTORY)
  get_filename_component(toolkit ${toolkit} DIRECTORY)
  find_path(TRAINCTL_NCCL_INCLUDE nccl.h HINTS ${toolkit}/include ${TRAINCTL_LIBTORCH}/../nvidia/nccl/include)
  if(NOT TRAINCTL_NCCL_INCLUDE)
    set(TRAINCTL_CUDA_MISSING "no nccl.h beside ${nvcc}, beside LibTorch or in the system's folders")
    message(STATUS "CUDA plugin: not built: ${TRAINCTL_CUDA_MISSING}")
  endif()
endif()
if(NOT TRAINCTL_CUDA_MISSING)
  add_library(trainctl_cuda MODULE ${PROJECT_SOURCE_DIR}/kernels/cuda/plugin.cc
                                   ${PROJECT_SOURCE_DIR}/kernels/cuda/nccl_backend.cc
                                   ${PROJECT_SOURCE_DIR}/kernels/cuda/graph.cc)
  target_include_directories(trainctl_cuda SYSTEM PRIVATE ${toolkit}/include ${TRAINCTL_NCCL_INCLUDE})
  target_compile_definitions(trainctl_cuda PRIVATE TRAINCTL_CUDA_VERSION=${TRAINCTL_CUDA_VERSION})
  target_link_libraries(trainctl_cuda PRIVATE trainctl_cuda_kernels ${TRAINCTL_LIBTORCH}/lib/libtorch_cuda.so
                                              ${TRAINCTL_LIBTORCH}/lib/libc10_cuda.so ${toolkit}/lib64/libcudart.so)
  target_link_options(trainctl_cuda PRIVATE -Wl,--exclude-libs,ALL)
  set_target_properties(trainctl_cuda PROPERTIES CXX_VISIBILITY_PRESET hidden
                        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
  trainctl_use_libtorch(trainctl_cuda)
  trainctl_use_older_symbols(trainctl_cuda)
endif()
