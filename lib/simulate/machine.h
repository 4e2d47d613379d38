// What `trainctl calibrate` measured of this machine, kept in a file of the user's configuration, so that
// plans tell times of this machine instead of orders of magnitude. Thread safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/dtype.h"
#include "cluster/host.h"
#include "simulate/cost.h"
#include "simulate/measured_device.h"

namespace trainctl::simulate {

inline constexpr char kMachineSchema[] = "trainctl.machine.v1";

// Rates of one worker while `workers` of them run with `threads` each.
struct MeasuredRates {
  DType dtype = DType::kF32;
  int64_t workers = 1;
  int64_t threads = 1;
  Rates rates;
};

struct MachineProfile {
  std::string cpu;  // as cluster::Host tells it
  int64_t cores = 1;
  std::vector<MeasuredRates> measured;  // of its CPU
  std::vector<MeasuredDevice> devices;  // each of another name

  // Another machine's CPU says nothing of this one.
  bool IsOf(const cluster::Host& host) const { return cpu == host.cpu && cores == host.allowed_cores; }

  // From the nearest load that was measured: what a worker computes and streams scales with the threads that
  // it really has, cores over workers where there are more threads than cores. Empty: this type was not
  // measured.
  std::optional<Rates> RatesFor(DType dtype, int64_t workers, int64_t threads) const;
  // Null: this one was not measured.
  const MeasuredDevice* FindDevice(absl::string_view name) const;
};

std::string MachineToJson(const MachineProfile& profile);
// BadDataError naming `what` and the field.
absl::StatusOr<MachineProfile> MachineFromJson(absl::string_view text, absl::string_view what);

// $XDG_CONFIG_HOME/trainctl/machine.json, or below ~/.config; empty when neither is known.
std::string MachineProfilePath();
// The profile at MachineProfilePath(), without the rates of a CPU that is not `host`'s; `notes` then says so.
// Empty when nothing is left, or there is none. A damaged file is an error.
absl::StatusOr<std::optional<MachineProfile>> LoadMachineProfile(const cluster::Host& host,
                                                                 std::vector<std::string>& notes);

}  // namespace trainctl::simulate
