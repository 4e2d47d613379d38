# Abseil, gRPC, protobuf and OpenSSL: as shared libraries for most, as archives for a program that starts often. They
# are some fifty files, and loading them takes several times as long as to make a plan. A target with the property
# TRAINCTL_ARCHIVES has them in itself, where this machine has all of the archives.

find_package(absl REQUIRED)
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(OpenSSL 3.0 REQUIRED COMPONENTS Crypto)

set(packages_script ${CMAKE_BINARY_DIR}/generated/packages.ld)
set(archives)
get_target_property(absl_library absl::strings LOCATION)
get_filename_component(library_folder ${absl_library} DIRECTORY)
foreach(name grpc++ grpc gpr address_sorting upb re2 cares protobuf ssl crypto)
  find_library(TRAINCTL_ARCHIVE_${name} NAMES lib${name}.a HINTS ${library_folder})
  list(APPEND archives ${TRAINCTL_ARCHIVE_${name}})
endforeach()
file(GLOB absl_archives ${library_folder}/libabsl_*.a)
list(JOIN archives " " archives)
list(JOIN absl_archives " " absl_archives)
# In any order: they need one another.
file(CONFIGURE OUTPUT ${packages_script} CONTENT "GROUP ( @archives@ @absl_archives@ )\n" @ONLY)

# Other versions of gRPC consist of other archives; whether these are all of them is tried.
set(TRAINCTL_HAS_ARCHIVES FALSE)
if(NOT TRAINCTL_SANITIZE AND NOT archives MATCHES "NOTFOUND")
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/link_probe.cc CONTENT [[
#include <grpcpp/grpcpp.h>
int main() {
  grpc::ServerBuilder builder;
  const auto channel = grpc::CreateChannel("localhost:1", grpc::InsecureChannelCredentials());
  return channel != nullptr && builder.BuildAndStart() != nullptr ? 0 : 1;
}
]] @ONLY)
  try_compile(TRAINCTL_ARCHIVES_LINK ${CMAKE_BINARY_DIR}/generated/link_probe
    SOURCES ${CMAKE_BINARY_DIR}/generated/link_probe.cc
    LINK_LIBRARIES ${packages_script} ZLIB::ZLIB Threads::Threads ${CMAKE_DL_LIBS}
    CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON)
  set(TRAINCTL_HAS_ARCHIVES ${TRAINCTL_ARCHIVES_LINK})
endif()

function(trainctl_add_package name shared)
  add_library(${name} INTERFACE)
  if(TRAINCTL_HAS_ARCHIVES)
    set(wants_archives $<BOOL:$<TARGET_PROPERTY:TRAINCTL_ARCHIVES>>)
    target_link_libraries(${name} INTERFACE "$<${wants_archives}:${packages_script};ZLIB::ZLIB;${CMAKE_DL_LIBS}>"
                                            "$<$<NOT:${wants_archives}>:${shared}>")
  else()
    target_link_libraries(${name} INTERFACE ${shared})
  endif()
endfunction()
trainctl_add_package(trainctl_absl "absl::status;absl::statusor;absl::strings;absl::str_format;absl::time;absl::flat_hash_map;absl::span")
trainctl_add_package(trainctl_grpc "gRPC::grpc++;protobuf::libprotobuf")
# gRPC's own: a program that had it twice, once in itself and once shared, would have two lists of errors.
trainctl_add_package(trainctl_openssl "OpenSSL::Crypto")
