// Whether the NCCL that is loaded can be given what was compiled against another one's header.
#pragma once

#include <cstdio>
#include <string>

namespace trainctl::kernels {

// Why not; empty: it can. Versions as NCCL_VERSION_CODE, 22703 for 2.27.3. A library takes the options of its
// own header and of older ones (ncclConfig_t tells its size), and not those of a newer one; `loaded` 0: it
// does not say what it is.
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
