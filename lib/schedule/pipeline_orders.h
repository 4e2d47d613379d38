// The table of all pipeline schedules ("orders"). Each has one entry: the number of stages that it supports
// and their placement, the builder of its passes, and the properties that its authors published. The entry is
// defined next to the builder in pipeline_<family>.cc. Code that depends on a property must read it from the
// entry instead of testing for a particular schedule. Pure data; thread-safe.
//
// To add a schedule, write its builder and entry, then add it to PipelineKind, to the declarations of the
// entries below and to kPipelineOrders.
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
  kZbH1,                   // weight gradients fill the bubble, memory as 1F1B
  kZbH2,                   // no bubble, twice the memory of 1F1B
  kInterleavedZeroBubble,  // interleaved, and weight gradients fill the bubble
  kZbv,                    // two stages per rank in a V, no bubble, memory as 1F1B
  kVHalf,                  // two stages per rank in a V, half the memory of 1F1B
  kVMin,                   // two stages per rank in a V, a third of the memory of 1F1B
  kDualPipe,               // two copies of the model, micro-batches enter at both ends
  kDualPipeV,              // DualPipe cut in half and folded into a V
};
inline constexpr int kNumPipelineKinds = 12;

struct PipelineShape {
  int64_t ranks = 1;
  int64_t num_micro_batches = 1;
  int64_t virtual_stages = 1;  // stages per rank; for DualPipe, per rank and copy
};

// The shapes that a schedule supports.
struct PipelineLimits {
  int min_virtual_stages = 1;  // also the default number of stages per rank
  int max_virtual_stages = 1;
  bool even_ranks = false;          // whether the number of ranks must be even
  bool even_micro_batches = false;  // whether the number of micro-batches must be even
  int micro_batches_per_rank = 0;   // the minimum: num_micro_batches >= micro_batches_per_rank * ranks
};
// The value of max_virtual_stages if there is no limit.
inline constexpr int kAnyNumberOfStages = 1 << 20;

enum class StageLayout : uint8_t {
  kLooped,    // stage s on rank s % ranks
  kV,         // from rank 0 to the last rank, then back to rank 0
  kBothEnds,  // two copies of the model, one from rank 0 to the last rank and one in the other direction
};

struct PipelineOrder {
  absl::string_view name;  // "1f1b"
  PipelineLimits limits;
  // Name of the equivalent schedule for one stage per rank, if this schedule requires several.
  absl::string_view with_one_stage = "";
  StageLayout layout = StageLayout::kLooped;
  bool splits_backward = false;  // has separate input and weight backwards
  bool forwards_first = false;   // runs all forwards before all backwards, so holds every micro-batch
  // Whether a rank waits for its sends (as in Megatron-LM) instead of sending while its passes run.
  bool sends_between_passes = false;
  // Fills `actions` of a schedule whose name and placement are already set.
  void (*build)(PipelineSchedule& schedule) = nullptr;

  // ---- Published properties, for what-ifs. Shapes must satisfy `limits` and have more than one rank.

  // Number of stage activations (one per stage and micro-batch) that `rank` holds at its peak. Each is held
  // from the forward to the last backward. Includes both copies of the model. Null if there is no closed
  // form; callers then count the passes of the schedule.
  int64_t (*in_flight)(const PipelineShape& shape, int64_t rank) = nullptr;
  // A lower bound of that number for rank 0, if `in_flight` is null. If this is null too, use the stages of
  // one micro-batch (virtual_stages).
  int64_t (*least_in_flight)(const PipelineShape& shape) = nullptr;
  // An upper bound of the number of weight backwards that are pending on the last rank. Null if unknown.
  int64_t (*most_waiting)(const PipelineShape& shape) = nullptr;
  // An upper bound of the number of one rank's forwards that run together with a backward. Null if none do.
  int64_t (*most_joined)(const PipelineShape& shape) = nullptr;

  int num_copies() const { return layout == StageLayout::kBothEnds ? 2 : 1; }
  bool joins_passes() const { return most_joined != nullptr; }
  // Returns the rank that holds a stage of one copy of the model. Each rank has one stage of every round of
  // `ranks` consecutive stages.
  int64_t RankOf(int copy, int64_t stage, int64_t ranks) const {
    return Ascends(copy, stage / ranks) ? ranks - 1 - stage % ranks : stage % ranks;
  }
  // The inverse: returns the stage that `rank` has in a round.
  int64_t StageOf(int copy, int64_t round, int64_t rank, int64_t ranks) const {
    return round * ranks + (Ascends(copy, round) ? ranks - 1 - rank : rank);
  }

 private:
  // Whether the stages of a round run from the last rank to rank 0.
  bool Ascends(int copy, int64_t round) const {
    return layout == StageLayout::kV ? round % 2 == 1 : copy == 1;
  }
};
extern const PipelineOrder kGPipeOrder, k1F1BOrder, kInterleaved1F1BOrder, kLoopedBreadthFirstOrder,
    kZbH1Order, kZbH2Order, kInterleavedZeroBubbleOrder, kZbvOrder, kVHalfOrder, kVMinOrder, kDualPipeOrder,
    kDualPipeVOrder;
// Indexed by PipelineKind.
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
