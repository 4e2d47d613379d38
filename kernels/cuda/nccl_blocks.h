// How large NCCL's kernels may be so that those of several communicators run at once.
#pragma once

#include <algorithm>

namespace trainctl::kernels {

// The most blocks (channels) of one of NCCL's kernels, for ncclConfig_t::maxCTAs. A kernel that waits for
// another rank holds its multiprocessors until that rank answers. If kernels on `num_streams` streams fit
// together, none keeps another one from its start: a kernel of a product ends by itself and makes room.
//
// Counted with a block per multiprocessor. A quarter of them stays free: from Hopper on NCCL launches
// clusters of four blocks within one GPC, and with more than three multiprocessors free per GPC each cluster
// finds room. A power of two, for NCCL rounds the channels of messages up to one (graph/paths.cc,
// ncclTopoComputeP2pChannels).
inline int MostBlocks(int multiprocessors, int num_streams) {
  const int share = multiprocessors * 3 / 4 / std::max(num_streams, 1);
  int blocks = 1;
  while (blocks * 2 <= share) blocks *= 2;
  return blocks;
}

}  // namespace trainctl::kernels
