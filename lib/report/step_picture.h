// One step to be shown, whoever worked it out: what each rank does on each of its streams and when, and what
// memory it holds meanwhile. The page (page.h) and the trace (trace.h) read this alone. Plain data; thread
// safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace trainctl::report {

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

// What fills a rank's device at its peak.
struct PeakMemory {
  double parameter_bytes = 0;
  double gradient_bytes = 0;
  double optimizer_bytes = 0;
  double activation_bytes = 0;
  double work_bytes = 0;
  double logit_bytes = 0;
  double outside_bytes = 0;  // no tensors: context, libraries, communication
  double lost_bytes = 0;     // to the allocator
  double device_bytes = 0;   // the sum
  double upper_bytes = 0;    // a bound to plan with
};

struct RankPicture {
  std::vector<Stream> streams;  // kCompute first
  std::vector<MemorySample> samples;
  double state_bytes = 0;    // parameters, optimizer, gradients that stay: throughout
  double outside_bytes = 0;  // what is no tensor, and what the allocator loses: throughout
  PeakMemory peak;
};

// Bytes at the instant of `sample`, on the device.
inline double DeviceBytes(const RankPicture& rank, const MemorySample& sample) {
  return rank.state_bytes + rank.outside_bytes + sample.gradient_bytes + sample.activation_bytes +
         sample.work_bytes;
}

// What a pass waits for, of each group of ranks.
struct ExchangeSeconds {
  double tensor = 0, expert = 0, context = 0, data = 0;
};

// One micro-batch through one stage.
struct StagePicture {
  double forward_s = 0, backward_s = 0, recompute_s = 0;
  ExchangeSeconds in_forward, in_backward;
};

// What a step's time is made of; an exchange counts as far as nothing covers it.
struct StepTerms {
  double compute_s = 0;  // forwards and backwards
  double recompute_s = 0;
  double tensor_s = 0;
  double expert_s = 0;
  double context_s = 0;
  double pipeline_s = 0;  // bubble and transfers
  double data_s = 0;
  double optimizer_s = 0;
  double offload_s = 0;  // copies to the host
};

struct StepPicture {
  std::vector<RankPicture> ranks;    // one of each pipeline rank
  std::vector<StagePicture> stages;  // num_stages of them
  int64_t num_stages = 0;
  int64_t num_micro_batches = 0;  // of the step
  // Of very long steps the schedule repeats itself; some rounds are left out then.
  int64_t left_out_micro_batches = 0;
  double left_out_s = 0;
  double end_s = 0;   // of what is drawn; with left_out_s the time of the step
  double step_s = 0;  // as priced
  StepTerms terms;
};

}  // namespace trainctl::report
