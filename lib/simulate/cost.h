// Time of a step: what each instruction asks of the machine, times what that costs there. The work follows
// from the operator tables that the executor runs. On a CPU each unit of a resource has its seconds, orders
// of magnitude until `trainctl calibrate` has measured them (machine.h); on a device of the catalogue
// products, attention and collectives are priced by shape and group instead (device_cost.h); device_rates.h
// has its rates. Pure; thread safe.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cluster/machine.h"
#include "layout/ledger.h"
#include "model/model_spec.h"
#include "model/work.h"
#include "schedule/build_step.h"
#include "simulate/device_cost.h"
#include "simulate/play.h"

namespace trainctl::simulate {

// The units of work are the operators' (model/work.h).
using model::kNumResources;
using model::Resource;
using model::ResourceName;
using model::Work;

// Of one worker, under the load that its neighbours on the machine make.
struct Rates {
  std::array<double, kNumResources> seconds_per_unit = {};
  bool overlap = true;    // collectives run beside compute; false: they take its time
  bool measured = false;  // by `trainctl calibrate`, on this machine or device
  // Null on a CPU. Else what it prices by shape costs nothing by units.
  std::shared_ptr<const cluster::Machine> machine;
  FusedAttention attention = FusedAttention::kFlash2;  // of a device
  ShapeScales scales;                                  // of `machine`
  double& operator[](Resource resource) { return seconds_per_unit[static_cast<size_t>(resource)]; }
  double operator[](Resource resource) const { return seconds_per_unit[static_cast<size_t>(resource)]; }
  bool operator==(const Rates& other) const;
  double Seconds(const Work& work) const;
};

// Rates of an uncalibrated CPU: a core does some 40 GFLOP/s in fp32 and half as much again in native bf16
// (four fifths where bf16 is turned into fp32 first) and streams 8 GB/s; loopback moves 1.5 GB/s and costs
// 0.1 ms a collective. The cores move the bytes as well, so nothing overlaps.
Rates CpuRates(int64_t threads, DType compute_dtype, bool native_bf16);

struct StepCost {
  double seconds = 0;          // of the step, streams overlapping as their waits allow
  double compute_seconds = 0;  // of the compute stream alone
  int64_t sent_bytes = 0;      // by one worker, all collectives and messages
};

// Cost of a step, of the class that has most of each. Of a data-parallel one of `num_micro_batches` from one
// of at most three: all but the first and the last cost the same, so the middle one is repeated; of a
// pipeline all are there.
inline constexpr int kMicroBatchesToPrice = 3;
StepCost PriceStep(const schedule::Step& step, const model::ModelSpec& spec, const layout::Ledger& ledger,
                   const schedule::BuildOptions& options, int64_t num_micro_batches, const Rates& rates);

// What one worker sends over an axis of the mesh in a step, of the class that sends most.
struct AxisVolume {
  layout::Axis axis = layout::Axis::kTp;
  int ranks = 1;
  int stride = 1;  // ranks between neighbours
  int64_t sent_bytes = 0;
};
// Of the axes with more than one rank, those whose neighbours are closest first. Of a step with all its
// micro-batches.
std::vector<AxisVolume> VolumesOf(const schedule::Step& step, const model::ModelSpec& spec,
                                  const layout::Ledger& ledger, const schedule::BuildOptions& options);

// Every instruction at the rates of one worker: what PriceStep plays, of a step with all its micro-batches.
Played PlayAtRates(const schedule::Step& step, const model::ModelSpec& spec, const layout::Ledger& ledger,
                   const schedule::BuildOptions& options, const Rates& rates);

// Work of a class of ranks by the names under which timings.jsonl tells what was measured: operators
// ("linear", "linear backward"), "optimizer step", "gradient norm", and under kCommunication and kOther
// what is left of a step.
inline constexpr char kCommunication[] = "communication";
inline constexpr char kOther[] = "other";
std::map<std::string, Work> WorkOfStep(const schedule::Program& program, const model::ModelSpec& spec,
                                       const layout::Ledger& ledger, const schedule::BuildOptions& options);

// Bytes that one worker sends for an instruction; 0 for compute instructions.
int64_t SentBytes(const schedule::Program& program, const schedule::Instruction& instruction,
                  const layout::Ledger& ledger, const schedule::Types& types);

}  // namespace trainctl::simulate
