// Internal to the simulator: adds up the cost of a step from its instructions, in list order. Not
// thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "schedule/step.h"
#include "simulate/cost.h"
#include "simulate/play.h"

namespace trainctl::simulate {

// Adds up the cost of one class. All micro-batches but the first and the last cost the same. The second of
// three is therefore counted again for each micro-batch that the step leaves out.
class CostSum {
 public:
  explicit CostSum(const Rates& rates) : rates_(rates) {}

  // Adds one instruction. The caller must add all instructions of the class in list order.
  void Add(int stream, int micro_batch, const InstructionTime& time, int64_t sent_bytes) {
    // All streams that carry messages share the last element.
    const size_t place = std::min(static_cast<size_t>(stream), stream_end_.size() - 1);
    double& stream_end = stream_end_[rates_.overlap ? place : 0];
    const bool computes = stream == schedule::kComputeStream;
    if (computes && micro_batch > micro_batch_) {
      micro_batch_ = micro_batch;
      if (micro_batch == 1) middle_begin_ = {stream_end, sum_.compute_seconds, sum_.sent_bytes};
      if (micro_batch == 2) middle_end_ = {stream_end, sum_.compute_seconds, sum_.sent_bytes};
    }
    stream_end = std::max(stream_end, time.end_s());
    if (computes) sum_.compute_seconds += time.seconds;
    sum_.sent_bytes += sent_bytes;
  }

  // Returns the cost of a step with `repeats` more micro-batches than were added. Includes the fixed cost of
  // a step.
  StepCost Total(int64_t repeats) const {
    StepCost cost = sum_;
    cost.seconds = *std::max_element(stream_end_.begin(), stream_end_.end()) + rates_[Resource::kSteps];
    if (repeats <= 0) return cost;
    const double times = static_cast<double>(repeats);
    cost.seconds += times * (middle_end_.seconds - middle_begin_.seconds);
    cost.compute_seconds += times * (middle_end_.compute_seconds - middle_begin_.compute_seconds);
    cost.sent_bytes += repeats * (middle_end_.sent_bytes - middle_begin_.sent_bytes);
    return cost;
  }

 private:
  const Rates& rates_;
  StepCost sum_;
  std::array<double, schedule::kNumDataStreams + 1> stream_end_ = {};
  // The sums when the second and the third micro-batch began.
  StepCost middle_begin_, middle_end_;
  int micro_batch_ = 0;
};

}  // namespace trainctl::simulate
