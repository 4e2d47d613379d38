#include "planner/published_errors.h"

namespace trainctl::planner {
namespace {

constexpr PublishedError kErrors[] = {
    {"megatron-core", 0, 0, 0, 20, 9.7, -8.9},
    {"megatron-bridge", 13, 5.6, 2.1, 246, 14.2, -7.1},
    {"megatron-deepspeed", 103, 4.4, 1.5, 136, 11.4, -7.9},
    {"fsdp1", 0, 0, 0, 216, 7.2, -5.7},
    {"torchtitan", 20, 2.8, -2.3, 25, 23.6, -19.5},
    {"torchtitan-eager", 0, 0, 0, 9, 6.9, -5.1},
    {"torchtune", 10, 3.4, -2.5, 10, 15, -3.3},
    {"internevo", 11, 2.1, -0.2, 54, 8.5, -6},
};

}  // namespace

absl::Span<const PublishedError> PublishedErrors() { return kErrors; }

const PublishedError* FindPublishedError(absl::string_view framework) {
  for (const PublishedError& error : kErrors) {
    if (framework == error.framework) return &error;
  }
  return nullptr;
}

}  // namespace trainctl::planner
