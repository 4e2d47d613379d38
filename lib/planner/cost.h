// Rough times of a schedule's instructions, and the schedule played against its streams. Good for
// comparing layouts on one machine, not for predicting a wall clock: the rates below are orders of
// magnitude, not measurements. Pure; thread safe.
#pragma once

#include <cstdint>

#include "model/model_spec.h"
#include "schedule/schedule.h"
#include "sharding/ledger.h"

namespace trainctl::planner {

// Rates of one worker.
struct Rates {
  double flops_per_second = 0;         // matrix products
  double memory_bytes_per_second = 0;  // streaming weights and optimizer state
  double link_bytes_per_second = 0;    // to its peers, each direction
  double collective_seconds = 0;       // fixed cost of one collective
  double instruction_seconds = 0;      // fixed cost of one compute instruction
  bool overlap = true;                 // collectives run beside compute; false: they take its time
};

// CPU workers: a core does some 40 GFLOP/s in fp32 and half as much again in native bf16 (a fifth
// where bf16 is emulated), streams 8 GB/s; loopback moves 1.5 GB/s and costs 0.1 ms a collective.
// Its cores move the bytes as well, so that nothing overlaps.
Rates CpuRates(int64_t threads, DType compute_dtype, bool native_bf16);

struct StepCost {
  double seconds = 0;          // of the step, streams overlapping as their waits allow
  double compute_seconds = 0;  // of the compute stream alone
  int64_t sent_bytes = 0;      // by one worker, all collectives
};

// Cost of a step of `num_micro_batches`, from a schedule of at most three: all but the first and the
// last cost the same, so the middle one is repeated.
inline constexpr int kMicroBatchesToPrice = 3;
StepCost PriceStep(const schedule::Schedule& schedule, const model::ModelSpec& spec,
                   const sharding::Ledger& ledger, const schedule::BuildOptions& options,
                   int64_t num_micro_batches, const Rates& rates);

// Bytes that one worker sends for an instruction; 0 for compute instructions.
int64_t SentBytes(const schedule::Instruction& instruction, const sharding::Ledger& ledger,
                  DType compute_dtype);

}  // namespace trainctl::planner
