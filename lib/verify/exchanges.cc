#include "verify/exchanges.h"

#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "model/graph.h"
#include "schedule/operator_passes.h"

namespace trainctl::verify {
namespace {

using schedule::Instruction;
using schedule::Op;

class Lister {
 public:
  explicit Lister(const schedule::LayoutStep& planned) : planned_(planned) {}

  std::vector<Exchange> Run() {
    const layout::Ledger& ledger = planned_.ledger;
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
    const model::Segment& segment = planned_.step.graph->segment(instruction.block);
    VisitOperators(segment, instruction.op, [&](const model::Operator& op, model::PassSet passes, bool) {
      for (const model::Pass pass : model::kPasses) {
        if (!passes.Has(pass)) continue;
        for (const model::OperatorExchange& exchange : model::ExchangesOf(segment, op, pass)) {
          add(absl::StrCat(schedule::Describe(instruction), "/", exchange.name), IsSum(exchange.collective),
              layout::Axis::kTp);
        }
      }
    });
  }

  const schedule::LayoutStep& planned_;
  absl::flat_hash_set<std::string> known_;
  std::vector<Exchange> exchanges_;
};

}  // namespace

std::vector<Exchange> ExchangesOf(const schedule::LayoutStep& planned) { return Lister(planned).Run(); }

}  // namespace trainctl::verify
