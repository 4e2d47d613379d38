#include "schedule/schedule.h"

#include <algorithm>
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

BuildOptions OptionsOf(const layout::Layout& layout, const StepSetting& setting, int64_t max_micro_batches) {
  BuildOptions options;
  options.shape = {layout.micro_batch, setting.seq_len};
  options.num_micro_batches = static_cast<int>(std::min(layout.num_micro_batches, max_micro_batches));
  options.micro_batches_of_step = layout.num_micro_batches;
  options.compute_dtype = setting.compute_dtype;
  options.recompute = layout.recompute;
  options.prefetch = setting.prefetch;
  options.checkpoint_copy = setting.checkpoint_copy;
  options.on_device = setting.on_device;
  options.threads = setting.threads;
  options.optimizer = setting.optimizer;
  return options;
}

std::string Describe(const Instruction& instruction) {
  std::string text(OpName(instruction.op));
  if (instruction.block >= 0) absl::StrAppend(&text, " block ", instruction.block);
  if (instruction.bucket >= 0) absl::StrAppend(&text, " bucket ", instruction.bucket);
  if (instruction.micro_batch >= 0) absl::StrAppend(&text, " micro-batch ", instruction.micro_batch);
  if (instruction.slot >= 0) absl::StrAppend(&text, " slot ", instruction.slot);
  return text;
}

}  // namespace trainctl::schedule
