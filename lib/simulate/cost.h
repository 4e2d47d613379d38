// Estimates the time of a step: the work of each instruction times the cost of that work on the machine. The
// work follows from the same operator tables that the executor runs. On a CPU, each unit of a resource has a
// cost in seconds. These rates are orders of magnitude until `trainctl calibrate` measures them (machine.h).
// On a device of the catalogue, the costs of matrix products, attention and collectives depend on their
// shapes and groups instead (device_cost.h). device_rates.h computes the rates of a device. Pure functions;
// thread-safe.
//
//   StepCost cost = PriceStep(step, ledger, options, num_micro_batches, rates);
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cluster/machine.h"
#include "layout/ledger.h"
#include "model/architecture.h"
#include "model/work.h"
#include "schedule/build_step.h"
#include "simulate/device_cost.h"
#include "simulate/play.h"

namespace trainctl::simulate {

// Operators state their work in these units (model/work.h).
using model::kNumResources;
using model::Resource;
using model::ResourceName;
using model::Work;

// Speed of one worker while the other workers on its machine are busy too.
struct Rates {
  std::array<double, kNumResources> seconds_per_unit = {};
  bool overlap = true;    // whether communication overlaps with compute instead of delaying it
  bool measured = false;  // whether `trainctl calibrate` measured the rates, on this machine or device
  // Null on a CPU, and for a device that is not in the catalogue. Otherwise the machine determines the costs
  // of products, attention and collectives, and the units of their resources cost nothing.
  std::shared_ptr<const cluster::Machine> machine;
  FusedAttention attention = FusedAttention::kFlash2;  // kernel that a device runs
  ShapeScales scales;                                  // corrections of the costs that `machine` gives
  double& operator[](Resource resource) { return seconds_per_unit[static_cast<size_t>(resource)]; }
  double operator[](Resource resource) const { return seconds_per_unit[static_cast<size_t>(resource)]; }
  bool operator==(const Rates& other) const;
  // Returns the time of the work in seconds.
  double Seconds(const Work& work) const;
};

// Returns the rates of an uncalibrated CPU. A core computes about 40 GFLOP/s in fp32, and 1.5 times as much
// in native bf16. Without bf16 instructions (`native_bf16` false), bf16 reaches 0.8 of the fp32 rate, because
// operands are converted to fp32 first. A worker streams 8 GB/s from memory. The loopback network moves 1.5
// GB/s. Each collective takes an additional 0.1 ms, or 0.5 ms if it is an exchange of tensor parallelism
// inside a layer. Nothing overlaps, because the same cores also move the bytes.
Rates CpuRates(int64_t threads, DType compute_dtype, bool native_bf16);

struct StepCost {
  double seconds = 0;          // time of the step; streams overlap as far as their waits allow
  double compute_seconds = 0;  // time of the instructions on the compute stream
  int64_t sent_bytes = 0;      // bytes that one worker sends; excludes all-reduces of one number
};

// Returns the cost of a step with `num_micro_batches` micro-batches. Each field is the largest over the
// classes. Without a pipeline, `step` may have only kMicroBatchesToPrice of the micro-batches. All but the
// first and the last cost the same, so the cost of the middle one is added once for each missing one. A step
// with a pipeline must have all micro-batches.
inline constexpr int kMicroBatchesToPrice = 3;
StepCost PriceStep(const schedule::Step& step, const layout::Ledger& ledger,
                   const schedule::BuildOptions& options, int64_t num_micro_batches, const Rates& rates);

// Traffic of one worker over an axis of the mesh in a step, for the class that sends the most.
struct AxisVolume {
  layout::Axis axis = layout::Axis::kTp;
  int ranks = 1;   // number of ranks on the axis
  int stride = 1;  // difference in rank between neighbors on the axis
  int64_t sent_bytes = 0;
};
// Returns the traffic over each axis with more than one rank, the smallest stride first. Includes the
// exchanges of tensor parallelism. `step` must have all its micro-batches.
std::vector<AxisVolume> VolumesOf(const schedule::Step& step, const layout::Ledger& ledger,
                                  const schedule::BuildOptions& options);

// Returns the start time and duration of every instruction at these rates, from which PriceStep computes the
// cost. `step` must have all its micro-batches if the result is to describe the whole step.
Played PlayAtRates(const schedule::Step& step, const layout::Ledger& ledger,
                   const schedule::BuildOptions& options, const Rates& rates);

// Returns the work of one rank of the first class, by the names under which timings.jsonl reports measured
// times. The names are those of operators ("linear", "linear backward"), "optimizer step" and "gradient
// norm". kCommunication has the collectives and messages outside the blocks, and kOther has the fixed cost of
// the step.
inline constexpr char kCommunication[] = "communication";
inline constexpr char kOther[] = "other";
std::map<std::string, Work> WorkOfStep(const schedule::Step& step, const layout::Ledger& ledger,
                                       const schedule::BuildOptions& options);

// Returns the number of bytes that one worker sends for an instruction of kSend, kGather, kGatherUpdated,
// kReduceGradient or kSumCopies. Returns 0 for all others. All-reduces of one number and the exchanges of
// tensor parallelism inside a block therefore do not count.
int64_t SentBytes(const schedule::Program& program, const schedule::Instruction& instruction,
                  const layout::Ledger& ledger, const schedule::Types& types);

}  // namespace trainctl::simulate
