#include "verify/exchanges.h"

#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "model/segment.h"

namespace trainctl::verify {
namespace {

using schedule::Instruction;
using schedule::Op;

class Lister {
 public:
  Lister(const schedule::LayoutStep& planned, const model::ModelSpec& spec)
      : planned_(planned), spec_(spec) {}

  std::vector<Exchange> Run() {
    const layout::Ledger& ledger = planned_.ledger;
    for (int block = 0; ledger.mesh().tp > 1 && block < planned_.step.num_blocks(); ++block) {
      segments_.push_back(
          model::BuildSegment(spec_, ledger.inventory(), block, planned_.options.segment(ledger)));
    }
    for (const layout::Reduction& reduction : ledger.Reductions())
      Add(reduction.name, /*is_sum=*/true, reduction.axis, -1);
    for (const schedule::Program& program : planned_.step.programs) {
      for (const Instruction& instruction : program.instructions) AddThoseOf(instruction);
    }
    return std::move(exchanges_);
  }

 private:
  void Add(const std::string& call, bool is_sum, layout::Axis axis, int micro_batch) {
    if (!known_.insert(call).second) return;
    exchanges_.push_back({.call = call,
                          .is_sum = is_sum,
                          .axis = std::string(layout::AxisName(axis)),
                          .micro_batch = micro_batch});
  }

  void AddThoseOf(const Instruction& instruction) {
    const auto add = [&](const std::string& what, bool is_sum, layout::Axis axis) {
      Add(absl::StrCat(what, "/", layout::AxisName(axis)), is_sum, axis, instruction.micro_batch);
    };
    if (instruction.op == Op::kReceive) {
      add(schedule::Describe(instruction), false, layout::Axis::kPp);
      exchanges_.back().is_message = true;
    }
    const bool gathers = instruction.op == Op::kGather || instruction.op == Op::kGatherUpdated;
    if (gathers && planned_.ledger.mesh().dp_shard > 1)
      add(absl::StrCat("parameters/", instruction.bucket), false, layout::Axis::kDpShard);
    if (!schedule::RunsBlock(instruction.op) || planned_.ledger.mesh().tp == 1) return;
    const model::Segment& segment = segments_[static_cast<size_t>(instruction.block)];
    AddTensorExchanges(instruction.op, segment, [&](const std::string& value, bool is_sum) {
      add(absl::StrCat(schedule::Describe(instruction), "/", value), is_sum, layout::Axis::kTp);
    });
  }

  template <typename AddExchange>
  static void AddTensorExchanges(Op pass, const model::Segment& segment, const AddExchange& add) {
    using model::TensorExchange;
    const bool forms_loss = pass == Op::kLossAndGradient || pass == Op::kLoss;
    const bool backward = pass == Op::kBackward || pass == Op::kBackwardInput || pass == Op::kLossAndGradient;
    const size_t num_operators =
        pass == Op::kRecompute ? model::NumOperatorsThatSave(segment) : segment.operators.size();
    for (size_t i = 0; i < num_operators; ++i) {
      const model::Operator& op = segment.operators[i];
      if (op.kind == model::OpKind::kLinearCrossEntropy && forms_loss) add("loss of row 0", /*is_sum=*/false);
      if (op.kind != model::OpKind::kTensorExchange) continue;
      const TensorExchange way = op.As<model::TensorExchangeAttributes>().way;
      const std::string& name = segment.values[static_cast<size_t>(op.outputs[0])].name;
      const bool forward = pass == Op::kForward || pass == Op::kRecompute || forms_loss;
      const bool runs_forward = forward || (backward && op.formed_again);
      if (runs_forward && way != TensorExchange::kSumGradients) add(name, way != TensorExchange::kGatherRows);
      if (backward && way != TensorExchange::kSumParts)
        add(absl::StrCat("gradient of ", name), way != TensorExchange::kScatterSums);
    }
  }

  const schedule::LayoutStep& planned_;
  const model::ModelSpec& spec_;
  std::vector<model::Segment> segments_;  // by block, with tensor parallelism
  absl::flat_hash_set<std::string> known_;
  std::vector<Exchange> exchanges_;
};

}  // namespace

std::vector<Exchange> ExchangesOf(const schedule::LayoutStep& planned, const model::ModelSpec& spec) {
  return Lister(planned, spec).Run();
}

}  // namespace trainctl::verify
