#include "frameworks/published_errors.h"

namespace trainctl::frameworks {
namespace {

constexpr PublishedError kErrors[] = {
    {"megatron-core", 0, 0, 0, 22, 10.5, -9.4},
    {"megatron-bridge", 13, 1.9, 0.2, 246, 13.6, -6.5},
    {"megatron-deepspeed", 103, 4.4, 1.5, 136, 9.3, -4.5},
    {"fsdp1", 0, 0, 0, 216, 6.3, -3.1},
    {"torchtitan", 20, 2.8, -2.3, 23, 16.4, -9.1},
    {"torchtitan-eager", 0, 0, 0, 9, 3.9, -2.3},
    {"torchtune", 10, 3.4, -2.5, 10, 14.1, -2.1},
    {"internevo", 11, 2.1, -0.2, 54, 6.4, -3.9},
};

}  // namespace

absl::Span<const PublishedError> PublishedErrors() { return kErrors; }

const PublishedError* FindPublishedError(absl::string_view framework) {
  for (const PublishedError& error : kErrors) {
    if (framework == error.framework) return &error;
  }
  return nullptr;
}

}  // namespace trainctl::frameworks
