#include "schedule/schedule.h"

#include <array>

#include "absl/strings/str_cat.h"

namespace trainctl::schedule {
namespace {

constexpr std::array<absl::string_view, 12> kOpNames = {
    "gather",         "forward",         "loss",         "loss and gradient", "recompute",
    "backward",       "reduce gradient", "count tokens", "reduce loss",       "gradient norm",
    "optimizer step", "gather updated"};
constexpr std::array<absl::string_view, kNumStreams> kStreamNames = {"compute", "gather", "reduce"};
constexpr std::array<absl::string_view, kNumCategories> kCategoryNames = {
    "parameters", "gradients", "optimizer", "activations", "buffers"};

}  // namespace

absl::string_view OpName(Op op) { return kOpNames[static_cast<size_t>(op)]; }
absl::string_view StreamName(StreamId stream) { return kStreamNames[static_cast<size_t>(stream)]; }
absl::string_view CategoryName(Category category) { return kCategoryNames[static_cast<size_t>(category)]; }

std::string Describe(const Instruction& instruction) {
  std::string text(OpName(instruction.op));
  if (instruction.block >= 0) absl::StrAppend(&text, " block ", instruction.block);
  if (instruction.bucket >= 0) absl::StrAppend(&text, " bucket ", instruction.bucket);
  if (instruction.micro_batch >= 0) absl::StrAppend(&text, " micro-batch ", instruction.micro_batch);
  if (instruction.slot >= 0) absl::StrAppend(&text, " slot ", instruction.slot);
  return text;
}

}  // namespace trainctl::schedule
