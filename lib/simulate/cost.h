// Time of a step on CPU workers: what each instruction asks of the machine, in units of a few resources,
// times the seconds that a unit takes. The work follows from the operator tables that the executor runs;
// the seconds are orders of magnitude until `trainctl calibrate` has measured them (machine.h). Pure;
// thread safe.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "cluster/catalogue.h"
#include "layout/ledger.h"
#include "model/model_spec.h"
#include "schedule/schedule.h"

namespace trainctl::simulate {

// What time is made of, and what `trainctl calibrate` finds the seconds per unit of.
enum class Resource : uint8_t {
  kMatmulFlops,
  kAttentionFlops,          // forward, of the scores that the kernel computes
  kAttentionBackwardFlops,  // the five products of the backward
  kAttentionTiles,          // fixed cost of one product of a tile of scores
  kLogits,                  // logits through softmax, loss and gradient
  kOperandBytes,            // of products, results and sums of gradients among them
  kMovedBytes,              // read and written by passes over memory
  kOptimizerElements,       // AdamW's update and the compute copy; others by the bytes that they move
  kOperators,               // fixed cost of starting one
  kSentBytes,               // by one worker to its peers
  kCollectives,             // fixed cost of one
  kSteps,                   // fixed cost of a step: data, log
};
inline constexpr int kNumResources = 12;
absl::string_view ResourceName(Resource resource);  // "matmul_flops"

struct Work {
  std::array<double, kNumResources> units = {};
  double& operator[](Resource resource) { return units[static_cast<size_t>(resource)]; }
  double operator[](Resource resource) const { return units[static_cast<size_t>(resource)]; }
  Work& operator+=(const Work& other);
};

// Of one worker, under the load that its neighbours on the machine make.
struct Rates {
  std::array<double, kNumResources> seconds_per_unit = {};
  bool overlap = true;    // collectives run beside compute; false: they take its time
  bool measured = false;  // by `trainctl calibrate`, on this machine
  double& operator[](Resource resource) { return seconds_per_unit[static_cast<size_t>(resource)]; }
  double operator[](Resource resource) const { return seconds_per_unit[static_cast<size_t>(resource)]; }
  bool operator==(const Rates&) const = default;
  double Seconds(const Work& work) const;
};

// Rates of an uncalibrated CPU: a core does some 40 GFLOP/s in fp32 and half as much again in native bf16 (a
// fifth where bf16 is emulated) and streams 8 GB/s; loopback moves 1.5 GB/s and costs 0.1 ms a collective.
// The cores move the bytes as well, so nothing overlaps.
Rates CpuRates(int64_t threads, DType compute_dtype, bool native_bf16);

// Rates of an accelerator of the catalogue: its published rates where there are any, else three quarters of
// its data sheet; collectives over the slowest link that `num_nodes` nodes share. Good for comparing layouts.
Rates DeviceRates(const cluster::Node& node, int64_t num_nodes, DType compute_dtype);

// Rates of a device that the catalogue does not know, in the proportions of the others: they put layouts in
// order and predict no time.
Rates UnknownDeviceRates(DType compute_dtype);

struct StepCost {
  double seconds = 0;          // of the step, streams overlapping as their waits allow
  double compute_seconds = 0;  // of the compute stream alone
  int64_t sent_bytes = 0;      // by one worker, all collectives
};

// Cost of a step of `num_micro_batches`, from a schedule of at most three: all but the first and the
// last cost the same, so the middle one is repeated.
inline constexpr int kMicroBatchesToPrice = 3;
StepCost PriceStep(const schedule::Schedule& schedule, const model::ModelSpec& spec,
                   const layout::Ledger& ledger, const schedule::BuildOptions& options,
                   int64_t num_micro_batches, const Rates& rates);

// When each instruction of a schedule begins and ends, in seconds from the step's begin: what PriceStep
// plays, of a schedule with all its micro-batches.
struct InstructionTime {
  double begin_s = 0;
  double seconds = 0;
  double end_s() const { return begin_s + seconds; }
};
std::vector<InstructionTime> TimesOfStep(const schedule::Schedule& schedule, const model::ModelSpec& spec,
                                         const layout::Ledger& ledger, const schedule::BuildOptions& options,
                                         const Rates& rates);

// Work of a whole schedule by the names under which timings.jsonl tells what was measured: operators
// ("linear", "linear backward"), "optimizer step", "gradient norm", and under kCommunication and kOther
// what is left of a step.
inline constexpr char kCommunication[] = "communication";
inline constexpr char kOther[] = "other";
std::map<std::string, Work> WorkOfStep(const schedule::Schedule& schedule, const model::ModelSpec& spec,
                                       const layout::Ledger& ledger, const schedule::BuildOptions& options);

// Bytes that one worker sends for an instruction; 0 for compute instructions.
int64_t SentBytes(const schedule::Instruction& instruction, const layout::Ledger& ledger,
                  DType compute_dtype);

}  // namespace trainctl::simulate
