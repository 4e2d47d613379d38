#include "schedule/step.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace trainctl::schedule {
namespace {

constexpr std::array<absl::string_view, kNumOps> kOpNames = {"gather",
                                                             "forward",
                                                             "loss",
                                                             "loss and gradient",
                                                             "recompute",
                                                             "backward",
                                                             "backward input",
                                                             "backward weight",
                                                             "send",
                                                             "receive",
                                                             "reduce gradient",
                                                             "sum copies",
                                                             "count tokens",
                                                             "reduce loss",
                                                             "gradient norm",
                                                             "optimizer step",
                                                             "gather updated"};
constexpr std::array<absl::string_view, kNumCategories> kCategoryNames = {
    "parameters", "gradients", "optimizer", "activations", "buffers"};
constexpr std::array<absl::string_view, kNumValueKinds> kValueKindNames = {"parameters",
                                                                           "parameter shards",
                                                                           "master parameters",
                                                                           "gradients",
                                                                           "optimizer state",
                                                                           "checkpoint copy",
                                                                           "rotary tables",
                                                                           "receive buffer",
                                                                           "tokens",
                                                                           "library's workspace",
                                                                           "gathered parameters",
                                                                           "gradient under way",
                                                                           "hidden",
                                                                           "gradient of hidden",
                                                                           "saved",
                                                                           "queued for weight gradients"};

}  // namespace

absl::string_view OpName(Op op) { return kOpNames[static_cast<size_t>(op)]; }
absl::string_view CategoryName(Category category) { return kCategoryNames[static_cast<size_t>(category)]; }
absl::string_view ValueKindName(ValueKind kind) { return kValueKindNames[static_cast<size_t>(kind)]; }

bool RunsBlock(Op op) { return op >= Op::kForward && op <= Op::kBackwardWeight; }

bool IsCompute(Op op) { return RunsBlock(op) || (op >= Op::kCountLossTokens && op <= Op::kOptimizerStep); }

std::string NameOf(const Value& value) {
  std::string name(ValueKindName(value.kind));
  if (value.kind >= ValueKind::kHidden) {
    absl::StrAppend(&name, " ", value.block, "/", value.micro_batch);
  } else if (value.micro_batch >= 0) {
    absl::StrAppend(&name, " ", value.micro_batch);
  }
  return name;
}

std::string NameOf(const Group& group) {
  constexpr std::array<absl::string_view, kNumDataStreams> kStreamNames = {"compute", "gather", "reduce"};
  std::string name(layout::AxisName(group.axis));
  if (!group.classes.empty()) absl::StrAppend(&name, " ", absl::StrJoin(group.classes, ","));
  if (group.copies > 0) name = absl::StrCat(group.copies, " of ", name);
  return absl::StrCat(name, " of the ", kStreamNames[static_cast<size_t>(group.stream)], " stream");
}

void Program::Clear() {
  num_micro_batches = 1;
  receive_buffer_bytes = 0;
  streams.clear();
  values.clear();
  parameter_slots.clear();
  gradient_slots.clear();
  instructions.clear();
}

int NumMessageStreams(const Program& program) {
  return static_cast<int>(std::count_if(program.streams.begin(), program.streams.end(),
                                        [](const Stream& stream) { return stream.peer >= 0; }));
}

int NumExchangeStreams(const Step& step) {
  std::set<int> streams;
  for (const Group& group : step.groups) {
    const bool is_of_scalars = group.stream == kComputeStream && group.axis != layout::Axis::kTp;
    if (!is_of_scalars) streams.insert(group.stream);
  }
  int num_messages = 0;
  for (const Program& program : step.programs)
    num_messages = std::max(num_messages, NumMessageStreams(program));
  return static_cast<int>(streams.size()) + num_messages;
}

int Step::StageOf(int block) const {
  const size_t num_stages = stage_begin.size() - 1;
  if (block < 0) return -1;
  if (block >= num_blocks()) return static_cast<int>(num_stages);
  // Stages are about even, so this is the right one or next to it.
  size_t stage = static_cast<size_t>(block) * num_stages / static_cast<size_t>(num_blocks());
  while (stage_begin[stage] > block) --stage;
  while (stage_begin[stage + 1] <= block) ++stage;
  return static_cast<int>(stage);
}

std::string Describe(const Instruction& instruction) {
  std::string text(OpName(instruction.op));
  if (instruction.block >= 0) absl::StrAppend(&text, " block ", instruction.block);
  if (instruction.bucket >= 0) absl::StrAppend(&text, " bucket ", instruction.bucket);
  if (instruction.micro_batch >= 0) absl::StrAppend(&text, " micro-batch ", instruction.micro_batch);
  if (instruction.slot >= 0) absl::StrAppend(&text, " slot ", instruction.slot);
  if (instruction.op == Op::kSend) absl::StrAppend(&text, " to ", instruction.peer);
  if (instruction.op == Op::kReceive) absl::StrAppend(&text, " from ", instruction.peer);
  return text;
}

}  // namespace trainctl::schedule
