// Creates the Gloo backend, which connects the hosts. Only gloo_backend.cc includes ProcessGroupGloo.hpp,
// because the system's Gloo headers are older than the Gloo inside LibTorch.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "comm/c10d.h"

namespace trainctl::comm {

// Connects the ranks of the world. Listens on `address`, an address of this machine at which the other ranks
// can reach it. Blocks until every rank has called it. `timeout` applies to connecting and to each operation.
// Throws c10::Error or another std::exception on failure.
c10::intrusive_ptr<c10d::Backend> MakeGlooBackend(c10::intrusive_ptr<c10d::Store> store, int rank,
                                                  int world_size, absl::Duration timeout,
                                                  const std::string& address);

}  // namespace trainctl::comm
