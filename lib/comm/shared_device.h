// Lets several ranks use NCCL on one GPU, for tests on a machine with a single GPU. Such tests check the
// calls, counts, streams and order of our own code against the real NCCL. Their timings mean nothing.
#pragma once

namespace trainctl::comm {

// Sets environment variables of this process that make NCCL regard `rank` as a separate host. Otherwise NCCL
// would reject a second rank on the same GPU (init.cc of NCCL 2.28 compares host hash and bus ID). They also
// make NCCL connect the ranks by sockets over the loopback interface. Variables that are already set are not
// changed. Call this before other threads start and before the first call of NCCL.
void SetUpSharedDevice(int rank);

}  // namespace trainctl::comm
