// Multipliers that a calibration found for one machine, and a machine that has them: copies of a device and
// of a node whose rates are scaled, so that everything that reads the catalogue's numbers, prices and bounds
// alike, sees the same machine. All multipliers at 1 are the data sheet.
//
//   const TunedMachine machine(tuning, *workload.device, *workload.node);
//   machine.Apply(workload);  // until `machine` ends
#pragma once

#include <array>
#include <utility>

#include "cluster/catalogue.h"

namespace trainctl::frameworks {

struct Workload;
struct MemoryPrice;

struct Tuning {
  double matmul_rate = 1;       // of matrix products and of attention, every precision
  double memory_bandwidth = 1;  // of kernels that only move bytes, and of the optimizer
  double link_bandwidth = 1;    // of all links, within a node and between them
  double reserved_share = 1;    // of what the caching allocator holds beyond the tensors
  bool operator==(const Tuning&) const = default;
};

inline constexpr int kNumTuningConstants = 4;
// Names and values in the order above; the names are those of the profile's file.
std::array<std::pair<const char*, double Tuning::*>, kNumTuningConstants> TuningConstants();

// What a multiplier may be; further off is a mistake in the rows or in their description.
inline constexpr double kLeastMultiplier = 0.25;
inline constexpr double kMostMultiplier = 4;

class TunedMachine {
 public:
  TunedMachine(const Tuning& tuning, const cluster::Device& device, const cluster::Node& node);
  TunedMachine(const TunedMachine&) = delete;  // the node points to the links beside it
  TunedMachine& operator=(const TunedMachine&) = delete;

  // `workload` points to this machine afterwards.
  void Apply(Workload& workload) const;

  const cluster::Device& device() const { return device_; }
  const cluster::Node& node() const { return node_; }

 private:
  Tuning tuning_;
  cluster::Device device_;
  cluster::Link scale_up_, scale_out_;
  cluster::Node node_;
};

// Scales what `price` holds beyond the tensors.
void TuneMemory(const Tuning& tuning, MemoryPrice& price);

}  // namespace trainctl::frameworks
