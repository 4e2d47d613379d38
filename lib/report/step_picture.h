// A picture of one step, independent of how it was computed. It shows the activity of each rank on each of
// its streams over time, and the memory that the rank uses. The page (page.h) and the trace (trace.h) are
// generated from this. Plain data; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace trainctl::report {

enum class SpanKind : uint8_t {
  kForward,
  kBackward,       // backward pass for inputs and weights, including recomputation
  kBackwardInput,  // backward pass for inputs only, including recomputation
  kBackwardWeight,
  kWait,  // wait for a message, which the other fields describe
  kSendActivation,
  kSendGradient,
  // Exposed communication of the pass with the same stage and micro-batch.
  kTensor,
  kExpert,
  kContext,
  kGather,  // all-gather of parameters over the data-parallel ranks
  kReduce,  // reduction of gradients
  // Exposed data-parallel communication during the passes, and the slowdown of passes by concurrent
  // communication. Shown at the end of each pass like the kinds above, or, with a pipeline, after all passes
  // (on kData).
  kSpread,
  kOptimizer,
};
inline constexpr int kNumSpanKinds = 14;
absl::string_view SpanKindName(SpanKind kind);  // "forward", "input backward", "wait"

struct Span {
  double start_s = 0;
  double end_s = 0;
  SpanKind kind = SpanKind::kForward;
  int stage = -1;        // -1 for the whole rank
  int micro_batch = -1;  // -1 if it does not belong to a micro-batch
  int peer = -1;         // pipeline rank at the other end of a send or a wait
};

enum class StreamKind : uint8_t {
  kCompute,  // passes, waits and the optimizer step
  // Communication that passes wait for, of tensor, expert, context and data parallelism. A pass on kCompute
  // spans the communication it waits for.
  kExchange,
  kSend,  // sends to one other pipeline rank
  kData,  // data-parallel communication, hidden behind passes or exposed
};

// A stream of non-overlapping spans, in order of time.
struct Stream {
  StreamKind kind = StreamKind::kCompute;
  std::string name;  // "compute", "send to rank 3"
  std::vector<Span> spans;
};

// A rank's memory in excess of its permanent memory, from this time until the next sample.
struct MemorySample {
  double time_s = 0;
  double gradient_bytes = 0;  // gradients allocated since the step began
  double activation_bytes = 0;
  double work_bytes = 0;  // working memory of the current pass, including logits
};

// A rank's device memory at its peak.
struct PeakMemory {
  double parameter_bytes = 0;
  double gradient_bytes = 0;
  double optimizer_bytes = 0;
  double activation_bytes = 0;
  double work_bytes = 0;
  double logit_bytes = 0;
  double outside_bytes = 0;  // memory other than tensors: context, libraries and communication
  double lost_bytes = 0;     // memory lost to the allocator
  double device_bytes = 0;   // total memory
  double upper_bytes = 0;    // upper bound on the total, used for planning
};

struct RankPicture {
  std::vector<Stream> streams;  // kCompute first
  std::vector<MemorySample> samples;
  double state_bytes = 0;    // permanent memory of parameters, optimizer state and gradients
  double outside_bytes = 0;  // permanent memory other than tensors, and memory lost to the allocator
  PeakMemory peak;
};

// Returns the memory used on the device at the time of `sample`.
inline double DeviceBytes(const RankPicture& rank, const MemorySample& sample) {
  return rank.state_bytes + rank.outside_bytes + sample.gradient_bytes + sample.activation_bytes +
         sample.work_bytes;
}

// How long a pass waits for communication, by kind of parallelism.
struct ExchangeSeconds {
  double tensor = 0, expert = 0, context = 0, data = 0;
};

// The times of one micro-batch in one stage.
struct StagePicture {
  double forward_s = 0, backward_s = 0, recompute_s = 0;
  ExchangeSeconds in_forward, in_backward;
};

// The parts of a step's time. Communication counts only as far as it is exposed.
struct StepTerms {
  double compute_s = 0;  // forward and backward passes
  double recompute_s = 0;
  double tensor_s = 0;
  double expert_s = 0;
  double context_s = 0;
  double pipeline_s = 0;  // pipeline bubble and transfers
  double data_s = 0;
  double optimizer_s = 0;
  double offload_s = 0;  // copies to host memory
};

struct StepPicture {
  std::vector<RankPicture> ranks;    // one for each pipeline rank
  std::vector<StagePicture> stages;  // one for each of num_stages stages
  int64_t num_stages = 0;
  int64_t num_micro_batches = 0;  // number of micro-batches in the step
  // A very long step repeats its schedule, so some of the rounds are not drawn. The next two fields say how
  // much is missing.
  int64_t left_out_micro_batches = 0;
  double left_out_s = 0;
  // End of the drawn part. The time of the step is end_s + left_out_s.
  double end_s = 0;
  double step_s = 0;  // estimated time of the step
  StepTerms terms;
};

}  // namespace trainctl::report
