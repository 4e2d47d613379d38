// Makes the Gloo backend. Its source is the one file that includes ProcessGroupGloo.hpp: the Gloo
// headers on the machine are older than the Gloo inside LibTorch.
#pragma once

#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "absl/time/time.h"

namespace trainctl::comm {

// Listens on `address`, of this machine, where the other ranks reach it. Blocks until every rank of the world
// has called it. Throws c10::Error.
c10::intrusive_ptr<c10d::Backend> MakeGlooBackend(c10::intrusive_ptr<c10d::Store> store, int rank,
                                                  int world_size, absl::Duration timeout,
                                                  const std::string& address);

}  // namespace trainctl::comm
