#include "comm/gloo_backend.h"

#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

namespace trainctl::comm {

c10::intrusive_ptr<c10d::Backend> MakeGlooBackend(c10::intrusive_ptr<c10d::Store> store, int rank,
                                                  int world_size, absl::Duration timeout,
                                                  const std::string& address) {
  auto options = c10d::ProcessGroupGloo::Options::create(absl::ToChronoMilliseconds(timeout));
  options->devices = {c10d::ProcessGroupGloo::createDeviceForHostname(address)};
  // Our collectives are point-to-point and run on our own streams; its pool serves nothing.
  options->threads = 1;
  return c10::make_intrusive<c10d::ProcessGroupGloo>(std::move(store), rank, world_size, std::move(options));
}

}  // namespace trainctl::comm
