// What each instruction of a step asks for, by the names of the measurements. Internal to the simulator.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "layout/ledger.h"
#include "model/segment.h"
#include "optim/optimizer.h"
#include "schedule/build_step.h"
#include "simulate/cost.h"

namespace trainctl::simulate {

// An update is bound by memory, so the elements of another optimizer count by what they move beside AdamW's.
inline double AdamWBytes() { return static_cast<double>(optim::kAdamW.MovedBytes(DType::kF32)); }

// Between two stages.
inline model::Exchange Message(const layout::Mesh& mesh, int64_t bytes) {
  return {.collective = Collective::kSendRecv,
          .bytes = static_cast<double>(bytes),
          .ranks = 2,
          .stride = mesh.stride(layout::Axis::kPp)};
}

// What a piece of work is reported under.
struct Part {
  absl::string_view name;
  bool backward = false;
  std::string Name() const { return absl::StrCat(name, backward ? " backward" : ""); }
};

class WorkTable {
 public:
  // All are borrowed. `more_layers`: those that a folded model lacks (fold.h).
  WorkTable(const model::ModelSpec& spec, const layout::Ledger& ledger, const schedule::BuildOptions& options,
            int own_class, int64_t more_layers = 0)
      : spec_(spec),
        ledger_(ledger),
        options_(options),
        own_buckets_(ledger.BucketsOfOwner(own_class)),
        more_layers_(more_layers) {
    // The first layer stands for all.
    for (int block : {model::EmbeddingBlock(), model::EmbeddingBlock() + 1, model::HeadBlock(spec)}) {
      segments_.push_back(model::BuildSegment(spec, ledger.inventory(), block, options.segment(ledger)));
    }
  }

  const model::Segment& segment(int block) const { return segments_[static_cast<size_t>(KindOf(block))]; }

  template <typename Add>  // void(part, work)
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
        if (options_.setting.on_device) work[Resource::kOperators] = 2;  // the sum, and what is clipped by it
        add({"gradient norm"}, work);
        return add({kCommunication}, Communication(program, instruction));
      }
      default:
        return add({kCommunication}, Communication(program, instruction));
    }
  }

  Work WorkOf(const schedule::Program& program, const schedule::Instruction& instruction) const {
    Work sum;
    Visit(program, instruction, [&](const Part&, const Work& work) { sum += work; });
    return sum;
  }

  // Instructions that run a block and have the same one ask for the same; -1: it runs none.
  static constexpr int kNumVariants = schedule::kNumOps * 3 * 4;
  int VariantOf(const schedule::Instruction& instruction) const {
    if (!RunsBlock(instruction.op)) return -1;
    const Adds adds = AddsOf(instruction);
    return (static_cast<int>(instruction.op) * 3 + KindOf(instruction.block)) * 4 + (adds.vectors ? 2 : 0) +
           (adds.matrices ? 1 : 0);
  }

  // Between one worker and itself nothing is exchanged.
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
  // A device is given updates that follow one another with the first: all, where none is gathered meanwhile.
  bool IsLaunched(const schedule::Instruction& update) const {
    const bool is_gathered = ledger_.optimizer_sharded() && !ledger_.parameters_sharded();
    return !options_.setting.on_device || is_gathered || update.bucket == own_buckets_.front();
  }

  // Of `segments_`.
  int KindOf(int block) const {
    return block == model::EmbeddingBlock() ? 0 : block == model::HeadBlock(spec_) ? 2 : 1;
  }

  // Whether gradients are added to what is there.
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
    const model::Segment& segment = this->segment(instruction.block);
    const auto [adds_vectors, adds_matrices] = AddsOf(instruction);
    const schedule::Op pass = instruction.op;
    const size_t num_operators =
        pass == schedule::Op::kRecompute ? model::NumOperatorsThatSave(segment) : segment.operators.size();
    for (size_t i = 0; i < num_operators; ++i) {
      const model::Operator& op = segment.operators[i];
      const model::OperatorEntry& entry = model::EntryOf(op.kind);
      if (pass == schedule::Op::kLossAndGradient && entry.loss_and_gradient_work != nullptr) {
        add({entry.name}, entry.loss_and_gradient_work(segment, op));
        continue;
      }
      if (pass == schedule::Op::kForward || pass == schedule::Op::kRecompute || pass == schedule::Op::kLoss ||
          pass == schedule::Op::kLossAndGradient)
        add({entry.name}, entry.forward_work(segment, op));
      const Part backward{entry.name, /*backward=*/true};
      if (op.formed_again && (pass == schedule::Op::kBackward || pass == schedule::Op::kBackwardInput))
        add(backward, entry.forward_work(segment, op));
      if (pass == schedule::Op::kBackward || pass == schedule::Op::kLossAndGradient)
        add(backward, model::BackwardWork(segment, op, adds_vectors));
      if (pass == schedule::Op::kBackwardInput && entry.input_gradient_work != nullptr)
        add(backward, entry.input_gradient_work(segment, op, adds_vectors));
      if (pass == schedule::Op::kBackwardWeight && entry.weight_gradient_work != nullptr)
        add(backward, entry.weight_gradient_work(segment, op, adds_matrices));
    }
  }

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
        // Over the replicas once a step.
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

  const model::ModelSpec& spec_;
  const layout::Ledger& ledger_;
  const schedule::BuildOptions& options_;
  const std::vector<int> own_buckets_;
  const int64_t more_layers_;
  std::vector<model::Segment> segments_;  // embedding, layer, head
};

}  // namespace trainctl::simulate
