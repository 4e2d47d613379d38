// Creates the Gloo backend, which connects the hosts. Only gloo_backend.cc includes ProcessGroupGloo.hpp,
// because the system's Gloo headers are older than the Gloo inside LibTorch.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "absl/time/time.h"

// Its headers include all of ATen.
namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace trainctl::comm {

// Connects the ranks of the world. Listens on `address`, an address of this machine at which the other ranks
// can reach it. Blocks until every rank has called it. `timeout` applies to connecting and to each operation.
// Throws c10::Error or another std::exception on failure.
c10::intrusive_ptr<c10d::Backend> MakeGlooBackend(c10::intrusive_ptr<c10d::Store> store, int rank,
                                                  int world_size, absl::Duration timeout,
                                                  const std::string& address);

}  // namespace trainctl::comm
