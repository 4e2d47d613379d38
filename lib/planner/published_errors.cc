#include "planner/published_errors.h"

namespace trainctl::planner {
namespace {

constexpr PublishedError kErrors[] = {
    {"megatron-core", 0, 0, 0, 20, 10, -8.9},
    {"megatron-bridge", 13, 6.3, -3.3, 246, 19.1, -7.7},
    {"megatron-deepspeed", 103, 4.6, -1.6, 136, 15.5, -11},
    {"fsdp1", 0, 0, 0, 216, 10.9, -9.3},
    {"torchtitan", 20, 4.1, -3.3, 34, 22.9, -14.1},
    {"torchtune", 10, 7.7, -2.5, 10, 18.4, -3.9},
    {"internevo", 11, 5.7, -6.2, 54, 13.5, -11.3},
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
