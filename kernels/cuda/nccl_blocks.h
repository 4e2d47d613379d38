// Limits the size of NCCL's kernels, so that kernels of several communicators can run at the same time.
#pragma once

#include <algorithm>

namespace trainctl::kernels {

// Returns the maximum number of blocks (channels) of one of NCCL's kernels, for ncclConfig_t::maxCTAs. A
// kernel that waits for another rank holds its multiprocessors until that rank answers. If kernels on
// `num_streams` streams fit together, none prevents another from starting. Compute kernels do not wait for
// peers, so they end and free their multiprocessors.
//
// The limit assumes one block per multiprocessor and keeps a quarter of them free. From Hopper on, NCCL
// launches clusters of four blocks within one GPC; a cluster fits if a GPC has four free multiprocessors. The
// limit is a power of two because NCCL rounds the number of message channels up to one (graph/paths.cc,
// ncclTopoComputeP2pChannels).
inline int MostBlocks(int multiprocessors, int num_streams) {
  const int share = multiprocessors * 3 / 4 / std::max(num_streams, 1);
  int blocks = 1;
  while (blocks * 2 <= share) blocks *= 2;
  return blocks;
}

}  // namespace trainctl::kernels
