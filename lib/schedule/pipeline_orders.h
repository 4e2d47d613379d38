// The orders of pipelines that there are. What an order is (the stages that it wants and where they lie, the
// passes of each rank, what its authors publish of it) is one entry, next to its builder in
// pipeline_<family>.cc. This header binds the entries in one table. Who depends on a property of an order
// reads it from the entry, and never asks which order it is. Pure data; thread safe.
//
// A new order: its row in PipelineKind and in kPipelineOrders, and its entry and builder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

#include "absl/strings/string_view.h"

namespace trainctl::schedule {

struct PipelineSchedule;

enum class PipelineKind : uint8_t {
  kGPipe,                  // all forwards, then all backwards (AFAB)
  k1F1B,                   // one forward, one backward (PipeDream-Flush)
  kInterleaved1F1B,        // 1F1B over several stages per rank, depth first
  kLoopedBreadthFirst,     // AFAB over several stages per rank, stage by stage
  kZbH1,                   // weight gradients fill the bubble, memory of 1F1B
  kZbH2,                   // no bubble, twice the memory
  kInterleavedZeroBubble,  // interleaved, with weight gradients as filling
  kZbv,                    // two stages per rank in a V, no bubble, memory of 1F1B
  kVHalf,                  // V, half the memory
  kVMin,                   // V, a third of the memory
  kDualPipe,               // two copies of the model, from both ends
  kDualPipeV,              // DualPipe cut in half, as a V
};
inline constexpr int kNumPipelineKinds = 12;

struct PipelineShape {
  int64_t ranks = 1;
  int64_t num_micro_batches = 1;
  int64_t virtual_stages = 1;  // stages per rank (DualPipe: per rank and copy)
};

// What an order can be built for; the least number of stages per rank is also the one to propose.
struct PipelineLimits {
  int min_virtual_stages = 1;
  int max_virtual_stages = 1;
  bool even_ranks = false;
  bool even_micro_batches = false;
  int micro_batches_per_rank = 0;  // at least so many times the ranks
};
inline constexpr int kAnyNumberOfStages = 1 << 20;

enum class StageLayout : uint8_t {
  kLooped,    // stage s on rank s % ranks
  kV,         // down the ranks, and back up
  kBothEnds,  // two copies of the model: one down the ranks, one up
};

struct PipelineOrder {
  absl::string_view name;  // "1f1b"
  PipelineLimits limits;
  absl::string_view with_one_stage = "";  // which order it is with one stage per rank, where that is refused
  StageLayout layout = StageLayout::kLooped;
  bool splits_backward = false;       // has weight backwards of their own
  bool forwards_first = false;        // all forwards, then all backwards: each micro-batch is held
  bool sends_between_passes = false;  // a rank waits for its sends (Megatron-LM); else beside its passes
  // Fills `actions`; the placement is in place.
  void (*build)(PipelineSchedule& schedule) = nullptr;

  // ---- what is published of it, for what-ifs. Shapes are possible ones, of more than one rank. --------

  // Stages of micro-batches that `rank` holds at once, from the forward to the last backward; both copies
  // together. Null: there is no form, the passes are counted.
  int64_t (*in_flight)(const PipelineShape& shape, int64_t rank) = nullptr;
  // Where that is null, of rank 0 at least. Null: those of one micro-batch.
  int64_t (*least_in_flight)(const PipelineShape& shape) = nullptr;
  // Weight backwards that wait on the last rank, at most. Null: that is not known.
  int64_t (*most_waiting)(const PipelineShape& shape) = nullptr;
  // Forwards of one rank that run together with a backward, at most. Null: none does.
  int64_t (*most_joined)(const PipelineShape& shape) = nullptr;

  int num_copies() const { return layout == StageLayout::kBothEnds ? 2 : 1; }
  bool joins_passes() const { return most_joined != nullptr; }
  // Where a stage of one copy of the model lies: of each round of `ranks` stages a rank has one.
  int64_t RankOf(int copy, int64_t stage, int64_t ranks) const {
    return Ascends(copy, stage / ranks) ? ranks - 1 - stage % ranks : stage % ranks;
  }
  int64_t StageOf(int copy, int64_t round, int64_t rank, int64_t ranks) const {
    return round * ranks + (Ascends(copy, round) ? ranks - 1 - rank : rank);
  }

 private:
  bool Ascends(int copy, int64_t round) const {
    return layout == StageLayout::kV ? round % 2 == 1 : copy == 1;
  }
};
extern const PipelineOrder kGPipeOrder, k1F1BOrder, kInterleaved1F1BOrder, kLoopedBreadthFirstOrder,
    kZbH1Order, kZbH2Order, kInterleavedZeroBubbleOrder, kZbvOrder, kVHalfOrder, kVMinOrder, kDualPipeOrder,
    kDualPipeVOrder;
// In the order of PipelineKind.
inline constexpr const PipelineOrder* kPipelineOrders[] = {&kGPipeOrder,
                                                           &k1F1BOrder,
                                                           &kInterleaved1F1BOrder,
                                                           &kLoopedBreadthFirstOrder,
                                                           &kZbH1Order,
                                                           &kZbH2Order,
                                                           &kInterleavedZeroBubbleOrder,
                                                           &kZbvOrder,
                                                           &kVHalfOrder,
                                                           &kVMinOrder,
                                                           &kDualPipeOrder,
                                                           &kDualPipeVOrder};
static_assert(std::size(kPipelineOrders) == kNumPipelineKinds);

inline const PipelineOrder& OrderOf(PipelineKind kind) { return *kPipelineOrders[static_cast<size_t>(kind)]; }
inline absl::string_view PipelineKindName(PipelineKind kind) { return OrderOf(kind).name; }
inline const PipelineLimits& LimitsOf(PipelineKind kind) { return OrderOf(kind).limits; }

}  // namespace trainctl::schedule
