// What a long run makes of its steps: stalls of checkpoints and of data, failures and the work that they
// undo. Pure; thread safe.
//
//   EffectiveTime t = PriceEffectiveTime(5.2, 16384, {.checkpoint_stall_seconds = 12,
//                                                     .failures_per_gpu_hour = 419 / (16384 * 54 * 24.0),
//                                                     .restart_seconds = 600});
//
// Failures are independent with a constant rate. Between checkpoints of interval T and stall C, with mean
// time M between failures of the whole job and R to restart, the expected wall time of T seconds of work is
//
//   exp(R / M) M (exp((T + C) / M) - 1)
//
// (J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", Future
// Generation Computer Systems 22, 2006, equation 13). The best T is his higher-order estimate, which for C <<
// M is Young's sqrt(2 C M) (Communications of the ACM 17, 1974).
#pragma once

#include <cstdint>

namespace trainctl::simulate {

// // Rate of a pinned copy to host memory over PCIe 4.0 x16, whose peak is 32 GB/s. The save continues from
// host memory while steps run.
inline constexpr double kHostCopyBytesPerSecond = 25e9;

struct Reliability {
  double checkpoint_stall_seconds = 0;     // training stands still so long for each
  double checkpoint_interval_seconds = 0;  // 0: the best one; none are written where nothing fails
  double failures_per_gpu_hour = 0;
  double restart_seconds = 0;     // from a failure to the first repeated step
  double data_stall_seconds = 0;  // of each step, for input that came late
};

struct EffectiveTime {
  double step_seconds = 0;                   // of wall time per step that lasts, all told
  double share_of_time = 1;                  // step_seconds of the input over that
  double checkpoint_interval_seconds = 0;    // as given or chosen; infinity: none is needed
  double mean_seconds_between_failures = 0;  // infinity: none
};

// Negative or NaN inputs count as 0. Where a run cannot get on (failures come faster than restarts end) the
// step takes infinitely long and the share is 0.
EffectiveTime PriceEffectiveTime(double step_seconds, int64_t gpus, const Reliability& reliability);

// Daly's estimate, equation 37; `mean_seconds` between failures, `stall_seconds` per checkpoint.
double BestCheckpointInterval(double stall_seconds, double mean_seconds);

}  // namespace trainctl::simulate
