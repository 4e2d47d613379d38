# LibTorch as one small imported target. find_package(Torch) is slow, wants a CUDA toolkit and
# redefines protobuf's targets.
if(NOT EXISTS ${TRAINCTL_LIBTORCH}/lib/libtorch_cpu.so)
  message(FATAL_ERROR "TRAINCTL_LIBTORCH='${TRAINCTL_LIBTORCH}' has no lib/libtorch_cpu.so. Run ./dev build, which finds or fetches it, "
                      "or pass -DTRAINCTL_LIBTORCH=\$(third_party/libtorch.sh).")
endif()

add_library(libtorch INTERFACE)
target_include_directories(libtorch SYSTEM INTERFACE ${TRAINCTL_LIBTORCH}/include
                                                     ${TRAINCTL_LIBTORCH}/include/torch/csrc/api/include)
target_link_libraries(libtorch INTERFACE ${TRAINCTL_LIBTORCH}/lib/libtorch_cpu.so ${TRAINCTL_LIBTORCH}/lib/libc10.so)
# ATen/Parallel.h does what it is asked on one thread where its includer is compiled without OpenMP. The library is
# LibTorch's own: it lies in the same folder under the same name.
target_compile_options(libtorch INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fopenmp>)
# A header of LibTorch includes the functions that it calls instead of all that there are (see lib/device/aten.h).
target_compile_definitions(libtorch INTERFACE AT_PER_OPERATOR_HEADERS)
# LibTorch's headers name themselves in errors.
target_compile_options(libtorch INTERFACE -fmacro-prefix-map=${TRAINCTL_LIBTORCH}/include/=)
# An RPATH, not a RUNPATH: it comes before LD_LIBRARY_PATH, where another LibTorch may lie.
target_link_options(libtorch INTERFACE -fopenmp -Wl,-rpath,${TRAINCTL_LIBTORCH}/lib -Wl,--disable-new-dtags
                                       -Wl,--allow-shlib-undefined)

# One precompiled header for every LibTorch target.
add_library(trainctl_torch_pch OBJECT ${PROJECT_SOURCE_DIR}/cmake/precompiled.cc)
target_link_libraries(trainctl_torch_pch PUBLIC trainctl_flags trainctl_absl libtorch)
target_precompile_headers(trainctl_torch_pch PRIVATE ${PROJECT_SOURCE_DIR}/cmake/torch_pch.h)

function(trainctl_use_libtorch target)
  target_link_libraries(${target} PUBLIC trainctl_flags libtorch)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE")
    # The precompiled header is built with -fPIC; an executable's default would be -fPIE.
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC)
  endif()
  target_precompile_headers(${target} REUSE_FROM trainctl_torch_pch)
endfunction()
