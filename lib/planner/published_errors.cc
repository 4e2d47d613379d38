#include "planner/published_errors.h"

namespace trainctl::planner {
namespace {

constexpr PublishedError kErrors[] = {
    {"megatron-core", 0, 0, 0, 15, 9.4, -10.8},
    {"megatron-bridge", 13, 6.3, -3.3, 246, 19.2, -8.5},
    {"megatron-deepspeed", 103, 4.6, -1.5, 137, 16.7, -12.6},
    {"fsdp1", 0, 0, 0, 216, 10.9, -9.3},
    {"torchtitan", 20, 3.9, -3.1, 31, 24.7, -14.8},
    {"torchtune", 10, 7.7, -2.5, 10, 57.5, -3.9},
    {"internevo", 11, 6.3, -8.1, 54, 13.5, -11.3},
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
