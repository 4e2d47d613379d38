// Checks whether the loaded NCCL library works with code that was compiled for another version's header.
#pragma once

#include <cstdio>
#include <string>

namespace trainctl::kernels {

// Returns why NCCL `loaded` cannot serve code that was compiled for version `built`, or "" if it can.
// Versions are NCCL_VERSION_CODE, for example 22703 for 2.27.3. A library accepts the options of its own
// header and of older ones of the same major version, because ncclConfig_t contains its size. It does not
// accept those of a newer header. `loaded` is 0 if the library does not report its version.
inline std::string WhyNotNccl(int built, int loaded) {
  const auto text = [](int version) {
    char name[32];
    std::snprintf(name, sizeof(name), "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    return std::string(name);
  };
  if (loaded == 0) return "no NCCL is loaded, or one that does not tell its version";
  if (loaded / 10000 == built / 10000 && loaded / 100 >= built / 100) return "";
  return "NCCL " + text(loaded) + " is loaded, and this plugin was built for " + text(built) +
         " or later of " + std::to_string(built / 10000) +
         ".x: install the NCCL that PyTorch's wheel brings, or build " +
         "the plugin against the header of the one that is here";
}

}  // namespace trainctl::kernels
