// Estimates the wall time of the steps of a long run, including stalls for checkpoints and data, failures,
// and the work that failures undo. Pure functions; thread-safe.
//
//   EffectiveTime t = PriceEffectiveTime(5.2, 16384, {.checkpoint_stall_seconds = 12,
//                                                     .failures_per_gpu_hour = 419 / (16384 * 54 * 24.0),
//                                                     .restart_seconds = 600});
//
// The model assumes independent failures at a constant rate. Let T be the work between two checkpoints, C the
// stall of one checkpoint, M the mean time between failures of the whole job, and R the time to restart. The
// expected wall time of T seconds of work is
//
//   exp(R / M) M (exp((T + C) / M) - 1)
//
// The source is equation 13 of J. T. Daly, "A higher order estimate of the optimum checkpoint interval for
// restart dumps", Future Generation Computer Systems 22, 2006. The best T is Daly's higher-order estimate.
// For C << M, it is Young's sqrt(2 C M) (Communications of the ACM 17, 1974).
#pragma once

#include <cstdint>

namespace trainctl::simulate {

// Rate of a pinned copy to host memory over PCIe 4.0 x16, whose peak is 32 GB/s. A save stalls training only
// for this copy. It then continues from host memory while steps run.
inline constexpr double kHostCopyBytesPerSecond = 25e9;

struct Reliability {
  double checkpoint_stall_seconds = 0;  // time for which training stops for each checkpoint
  // Work between two checkpoints. If 0, the best interval is chosen, which means no checkpoints if there are
  // no failures.
  double checkpoint_interval_seconds = 0;
  double failures_per_gpu_hour = 0;
  double restart_seconds = 0;     // time from a failure to the first repeated step
  double data_stall_seconds = 0;  // time for which each step waits for late input
};

struct EffectiveTime {
  double step_seconds = 0;   // wall time per step whose result is kept, including stalls and failures
  double share_of_time = 1;  // the step time passed in, divided by step_seconds
  // Interval that was given or chosen, and at least one step. Infinity if no checkpoints are needed.
  double checkpoint_interval_seconds = 0;
  double mean_seconds_between_failures = 0;  // mean time for the whole job; infinity if there are no failures
};

// Estimates the effective time of a run on `gpus` devices. Negative or NaN inputs count as 0. If failures are
// so frequent that the run makes no progress, step_seconds is infinity and share_of_time is 0.
EffectiveTime PriceEffectiveTime(double step_seconds, int64_t gpus, const Reliability& reliability);

// Returns the best time, in seconds, between two checkpoints, by Daly's estimate (equation 37).
// `mean_seconds` is the mean time between failures, and `stall_seconds` is the stall of each checkpoint.
// Returns infinity if `mean_seconds` is infinity.
double BestCheckpointInterval(double stall_seconds, double mean_seconds);

}  // namespace trainctl::simulate
