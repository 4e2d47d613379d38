#include "comm/shared_device.h"

#include <cstdlib>
#include <string>
#include <utility>

namespace trainctl::comm {

void SetUpSharedDevice(int rank) {
  const std::pair<const char*, std::string> variables[] = {
      {"NCCL_HOSTID", "trainctl-rank-" + std::to_string(rank)},
      {"NCCL_NET", "Socket"},
      {"NCCL_SOCKET_IFNAME", "=lo"},
      // No transport that needs a card for each rank.
      {"NCCL_MNNVL_ENABLE", "0"},
      {"NCCL_NVLS_ENABLE", "0"},
      // The kernels of all ranks must fit onto the card at once.
      {"NCCL_MAX_CTAS", "2"},
      {"NCCL_BUFFSIZE", "1048576"},
      {"NCCL_IGNORE_CPU_AFFINITY", "1"},
      {"NCCL_RAS_ENABLE", "0"},
  };
  for (const auto& [name, value] : variables) ::setenv(name, value.c_str(), /*overwrite=*/0);
}

}  // namespace trainctl::comm
