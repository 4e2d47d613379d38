// One step of a job, drawn: what each pipeline rank does on each of its streams and when, and what memory it
// holds meanwhile. It plays the schedule that PriceTime plays with the costs that PriceTime has, so that the
// two agree on the step, and its memory peaks where PriceMemory says. Pure; thread safe.
//
//   const pricing::Timeline timeline = pricing::BuildTimeline(workload);
//   for (const pricing::Stream& stream : timeline.ranks[0].streams) ...
//
// What is simplified: a pass is one span, its exposed exchanges are drawn together at its end though they lie
// between its layers; data-parallel ranks are alike, so that one of them stands for all.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "pricing/price_memory.h"
#include "pricing/price_time.h"
#include "pricing/workload.h"

namespace trainctl::pricing {

enum class SpanKind : uint8_t {
  kForward,
  kBackward,       // both gradients, recomputation included
  kBackwardInput,  // recomputation included
  kBackwardWeight,
  kWait,  // for a message; what comes is in the other fields
  kSendActivation,
  kSendGradient,
  kTensor,  // exposed exchanges of the pass with the same stage and micro-batch
  kExpert,
  kContext,
  kGather,  // of parameters, over the data-parallel ranks
  kReduce,  // of gradients
  kSpread,  // exposed data parallelism throughout the passes, and what passes lose to exchanges beside them:
            // at the end of each as the ones above, or after all of them (kData) where there is a pipeline
  kOptimizer,
};
inline constexpr int kNumSpanKinds = 14;
absl::string_view SpanKindName(SpanKind kind);  // "forward", "input backward", "wait"

struct Span {
  double start_s = 0;
  double end_s = 0;
  SpanKind kind = SpanKind::kForward;
  int stage = -1;        // -1: of the whole rank
  int micro_batch = -1;  // -1: of none
  int peer = -1;         // pipeline rank at the other end of a send or a wait
};

enum class StreamKind : uint8_t {
  kCompute,   // passes, waits, the optimizer
  kExchange,  // what passes wait for: tensor, expert, context, data parallelism; a pass of kCompute spans it
  kSend,      // to one other pipeline rank
  kData,      // data parallelism, hidden behind passes or not
};

// Spans follow one another: none begins before the one before it has ended.
struct Stream {
  StreamKind kind = StreamKind::kCompute;
  std::string name;  // "compute", "send to rank 3"
  std::vector<Span> spans;
};

// Beyond what a rank always holds, from this instant to the next sample.
struct MemorySample {
  double time_s = 0;
  double gradient_bytes = 0;  // those that were not there when the step began
  double activation_bytes = 0;
  double work_bytes = 0;  // of the pass under way, with logits
};

struct RankTimeline {
  std::vector<Stream> streams;  // kCompute first
  MemoryPrice memory;           // at the rank's peak
  double state_bytes = 0;       // parameters, optimizer, gradients that stay: throughout
  double outside_bytes = 0;     // what is no tensor, and what the allocator loses: throughout
  std::vector<MemorySample> samples;
  double end_s = 0;  // of its last pass
};

struct Timeline {
  StepParts parts;
  std::vector<RankTimeline> ranks;  // pp of them
  int64_t num_stages = 0;
  int64_t num_micro_batches = 0;  // of the step
  // Of very long steps the schedule repeats itself; some rounds are left out then.
  int64_t left_out_micro_batches = 0;
  double left_out_s = 0;
  double data_per_forward_s = 0, data_per_backward_s = 0;  // kSpread of each pass
  double end_s = 0;  // of the optimizer; end_s + left_out_s is the time of the step
};

struct TimelineOptions {
  // Forwards and backwards of all ranks to draw at most, as far as whole rounds can be left out.
  int64_t max_passes = 200'000;
};

// `workload` is valid (Validate).
Timeline BuildTimeline(const Workload& workload, const TimelineOptions& options = {});

// The schedule as it is played for the drawing, with its times (pipeline_draw.h). One rank has one stage
// here.
struct PlayedPipeline {
  schedule::LoweredPipeline lowered;
  schedule::PipelineTimes times;
  schedule::PipelineCosts costs;
  int64_t left_out_micro_batches = 0;
  // In the passes of one rank: its share of what data parallelism exposes throughout them.
  double data_per_forward_s = 0, data_per_backward_s = 0;
};
PlayedPipeline PlayPipeline(const Workload& workload, const StepParts& parts,
                            const TimelineOptions& options = {});

// Bytes at the instant of `sample`, on the device.
inline double DeviceBytes(const RankTimeline& rank, const MemorySample& sample) {
  return rank.state_bytes + rank.outside_bytes + sample.gradient_bytes + sample.activation_bytes +
         sample.work_bytes;
}

}  // namespace trainctl::pricing
