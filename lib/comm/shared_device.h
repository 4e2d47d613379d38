// Several ranks on one GPU, for tests: what they compute proves the calls, counts, streams and order of our
// own code on real NCCL where there is one card. How long it takes means nothing.
#pragma once

namespace trainctl::comm {

// Sets variables of this process by which NCCL takes rank `rank` for a host of its own, so that it does not
// refuse a second rank on the same card (NCCL 2.28: init.cc compares host hash and bus id), and connects
// ranks by sockets over the loopback interface. Does not override variables that are set. Call before other
// threads start and before NCCL's first call.
void SetUpSharedDevice(int rank);

}  // namespace trainctl::comm
