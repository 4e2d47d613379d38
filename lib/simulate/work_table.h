// Internal to the simulator: the work of each instruction of a step, by the names that measurements use (see
// WorkOfStep in cost.h). Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "layout/ledger.h"
#include "model/graph.h"
#include "optim/optimizer.h"
#include "schedule/build_step.h"
#include "schedule/operator_passes.h"
#include "simulate/cost.h"

namespace trainctl::simulate {

// Returns the bytes that AdamW moves per element with fp32 master parameters. An update is bound by memory,
// so an element of another optimizer counts as the bytes that it moves divided by this.
inline double AdamWBytes() { return static_cast<double>(optim::kAdamW.MovedBytes(DType::kF32)); }

// Returns the exchange that sends `bytes` from one pipeline stage to the next.
inline model::Exchange Message(const layout::Mesh& mesh, int64_t bytes) {
  return {.collective = Collective::kSendRecv,
          .bytes = static_cast<double>(bytes),
          .ranks = 2,
          .stride = mesh.stride(layout::Axis::kPp)};
}

// The name under which a piece of work is reported, such as "linear backward".
struct Part {
  absl::string_view name;  // "linear"
  bool backward = false;
  std::string Name() const { return absl::StrCat(name, backward ? " backward" : ""); }
};

class WorkTable {
 public:
  // `graph`, `ledger` and `options` must outlive this object. `more_layers` is the number of layers that a
  // folded model leaves out (fold.h); the gradient norm includes them.
  WorkTable(const model::Graph& graph, const layout::Ledger& ledger, const schedule::BuildOptions& options,
            int own_class, int64_t more_layers = 0)
      : graph_(graph),
        ledger_(ledger),
        options_(options),
        own_buckets_(ledger.BucketsOfOwner(own_class)),
        more_layers_(more_layers) {}

  // Calls `add(part, work)` for each part of the instruction's work. The same name may occur several times.
  template <typename Add>
  void Visit(const schedule::Program& program, const schedule::Instruction& instruction,
             const Add& add) const {
    if (RunsBlock(instruction.op)) return VisitBlock(instruction, add);
    switch (instruction.op) {
      case schedule::Op::kOptimizerStep: {
        Work work;
        work[Resource::kOptimizerElements] =
            static_cast<double>(ledger_.optimizer_numel(instruction.bucket)) *
            static_cast<double>(options_.setting.optimizer->MovedBytes(options_.setting.types.master)) /
            AdamWBytes();
        work[Resource::kOperators] = IsLaunched(instruction) ? 1 : 0;
        return add({"optimizer step"}, work);
      }
      case schedule::Op::kGradNorm: {
        Work work;
        work[Resource::kMovedBytes] = GradientPartBytes();
        if (options_.setting.on_device) work[Resource::kOperators] = 2;  // the sum and the clipping factor
        add({"gradient norm"}, work);
        return add({kCommunication}, Communication(program, instruction));
      }
      default:
        return add({kCommunication}, Communication(program, instruction));
    }
  }

  // Returns the sum over all parts.
  Work WorkOf(const schedule::Program& program, const schedule::Instruction& instruction) const {
    Work sum;
    Visit(program, instruction, [&](const Part&, const Work& work) { sum += work; });
    return sum;
  }

  // Instructions with the same variant have the same work. Variants are from 0 to num_variants() - 1.
  int num_variants() const { return schedule::kNumOps * num_kinds() * 4; }
  // Returns -1 if the instruction does not run a block.
  int VariantOf(const schedule::Instruction& instruction) const {
    if (!RunsBlock(instruction.op)) return -1;
    const Adds adds = AddsOf(instruction);
    const int kind = graph_.blocks[static_cast<size_t>(instruction.block)].kind;
    return (static_cast<int>(instruction.op) * num_kinds() + kind) * 4 + (adds.vectors ? 2 : 0) +
           (adds.matrices ? 1 : 0);
  }

  // Returns the work of the instruction's communication outside the blocks, which is none with only one
  // worker.
  Work Communication(const schedule::Program& program, const schedule::Instruction& instruction) const {
    Work work;
    if (ledger_.mesh().world_size() == 1) return work;
    const int64_t sent = SentBytes(program, instruction, ledger_, options_.setting.types);
    work[Resource::kSentBytes] = static_cast<double>(sent);
    work[Resource::kCollectives] = 1;
    if (instruction.op == schedule::Op::kSend) {
      work.exchanges = {{Message(ledger_.mesh(), sent)}};
    } else {
      AddExchanges(instruction, work);
    }
    return work;
  }

 private:
  // Whether the host launches this optimizer step. A device gets consecutive updates in the launch of the
  // first one. Updates are consecutive if no updated parameters are gathered between them.
  bool IsLaunched(const schedule::Instruction& update) const {
    const bool is_gathered = ledger_.optimizer_sharded() && !ledger_.parameters_sharded();
    return !options_.setting.on_device || is_gathered || update.bucket == own_buckets_.front();
  }

  int num_kinds() const { return static_cast<int>(graph_.kinds.size()); }

  // Whether gradients are added to existing ones. `vectors` are the gradients that the input backward
  // computes (of norms, biases and the embedding). `matrices` are the others.
  struct Adds {
    bool vectors = true, matrices = true;
  };
  static Adds AddsOf(const schedule::Instruction& instruction) {
    Adds adds;
    for (const schedule::GradientWrite& write : instruction.gradients) {
      adds.vectors = adds.vectors && write.accumulate;
      adds.matrices = adds.matrices && write.accumulate_weights;
    }
    return adds;
  }

  template <typename Add>
  void VisitBlock(const schedule::Instruction& instruction, const Add& add) const {
    const model::Segment& segment = graph_.segment(instruction.block);
    const auto [adds_vectors, adds_matrices] = AddsOf(instruction);
    const bool accumulates = instruction.op == schedule::Op::kBackwardWeight ? adds_matrices : adds_vectors;
    VisitOperators(
        segment, instruction.op, [&](const model::Operator& op, model::PassSet passes, bool is_again) {
          const bool backward =
              is_again || !(passes.Has(model::Pass::kForward) || passes.Has(model::Pass::kLossAndGradient));
          add({model::OpKindName(op.kind), backward}, model::WorkOf(segment, op, passes, accumulates));
        });
  }

  // Adds the collectives of an instruction that is not a message.
  void AddExchanges(const schedule::Instruction& instruction, Work& work) const {
    using layout::Axis;
    const auto over = [&](Axis axis, Collective collective, int64_t bytes, int ranks) {
      if (ranks == 1) return;
      work.exchanges.push_back({{.collective = collective,
                                 .bytes = static_cast<double>(bytes),
                                 .ranks = ranks,
                                 .stride = ledger_.mesh().stride(axis)}});
    };
    const auto over_all = [&](Axis axis, Collective collective, int64_t bytes) {
      over(axis, collective, bytes, ledger_.mesh().degree(axis));
    };
    constexpr int64_t kScalarBytes = 8;
    switch (instruction.op) {
      case schedule::Op::kCountLossTokens:
      case schedule::Op::kReduceLoss:
        over_all(Axis::kDpReplicate, Collective::kAllReduce, kScalarBytes);
        [[fallthrough]];
      case schedule::Op::kGradNorm:
        over_all(Axis::kDpShard, Collective::kAllReduce, kScalarBytes);
        if (instruction.op == schedule::Op::kGradNorm)
          over_all(Axis::kTp, Collective::kAllReduce, kScalarBytes);
        if (instruction.op != schedule::Op::kCountLossTokens)
          over_all(Axis::kPp, Collective::kAllReduce, kScalarBytes);
        return;
      default:
        break;
    }
    if (instruction.bucket < 0) return;
    const int64_t numel = ledger_.buckets()[static_cast<size_t>(instruction.bucket)].shard_numel;
    const int64_t whole = numel * ledger_.mesh().dp_shard;
    const int64_t sum_bytes = DTypeBytes(options_.setting.types.sum);
    switch (instruction.op) {
      case schedule::Op::kGather:
      case schedule::Op::kGatherUpdated:
        return over_all(Axis::kDpShard, Collective::kAllGather,
                        whole * DTypeBytes(options_.setting.types.compute));
      case schedule::Op::kReduceGradient:
        over_all(Axis::kDpShard, Collective::kReduceScatter, whole * sum_bytes);
        // The reduction over the replicas happens only once per step.
        if (instruction.groups.size() > 1)
          over_all(Axis::kDpReplicate, Collective::kAllReduce, numel * sum_bytes);
        return;
      case schedule::Op::kSumCopies:
        over(Axis::kPp, Collective::kAllReduce, numel * sum_bytes,
             static_cast<int>(ledger_.owners(instruction.bucket).size()));
        for (const int copies : ledger_.CopiesOfBucket(instruction.bucket)) {
          over(Axis::kTp, Collective::kAllReduce,
               ledger_.NumelOfCopies(instruction.bucket, copies) * sum_bytes, copies);
        }
        return;
      default:
        return;
    }
  }

  // Bytes of the gradients that this class contributes to the norm.
  double GradientPartBytes() const {
    const auto gradient_bytes = static_cast<double>(DTypeBytes(options_.setting.types.gradient));
    double bytes = 0;
    for (int bucket : own_buckets_)
      bytes += static_cast<double>(ledger_.optimizer_numel(bucket)) * gradient_bytes;
    if (more_layers_ > 0) {
      bytes += static_cast<double>(more_layers_) *
               static_cast<double>(ledger_.optimizer_numel(model::EmbeddingBlock() + 1)) * gradient_bytes;
    }
    return bytes;
  }

  const model::Graph& graph_;
  const layout::Ledger& ledger_;
  const schedule::BuildOptions& options_;
  const std::vector<int> own_buckets_;
  const int64_t more_layers_;
};

}  // namespace trainctl::simulate
