// The rates that `trainctl calibrate` measured on this machine. They are kept in a file in the user's
// configuration folder. With them, plans predict this machine's times instead of orders of magnitude.
// Thread-safe.
//
//   std::vector<std::string> notes;
//   TRAINCTL_ASSIGN_OR_RETURN(std::optional<MachineProfile> profile, LoadMachineProfile(host, notes));
//   if (profile) rates = profile->RatesFor(DType::kF32, workers, threads);
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

// Rates of one worker while `workers` workers run with `threads` threads each.
struct MeasuredRates {
  DType dtype = DType::kF32;  // compute type
  int64_t workers = 1;
  int64_t threads = 1;
  Rates rates;
};

struct MachineProfile {
  std::string cpu;                      // name as in cluster::Host::cpu
  int64_t cores = 1;                    // number of cores that the process may use
  std::vector<MeasuredRates> measured;  // rates of the CPU
  std::vector<MeasuredDevice> devices;  // measurements of devices, with distinct names

  // Returns whether the CPU rates are for `host`: it has the same CPU and the same number of allowed cores.
  bool IsOf(const cluster::Host& host) const { return cpu == host.cpu && cores == host.allowed_cores; }

  // Returns rates derived from the measurement whose numbers of workers and threads are nearest. The rates of
  // compute and of memory scale with the threads of a worker that can run at once: `threads`, but at most
  // cores / workers. The fixed costs and the rates of communication do not scale. Returns nullopt if no
  // measurement has this type.
  std::optional<Rates> RatesFor(DType dtype, int64_t workers, int64_t threads) const;
  // Returns null if the device was not measured.
  const MeasuredDevice* FindDevice(absl::string_view name) const;
};

std::string MachineToJson(const MachineProfile& profile);
// The inverse of MachineToJson. A BadDataError names `what` and the field.
absl::StatusOr<MachineProfile> MachineFromJson(absl::string_view text, absl::string_view what);

// Returns $XDG_CONFIG_HOME/trainctl/machine.json, or $HOME/.config/trainctl/machine.json if the first
// variable is not an absolute path. Returns an empty string if $HOME is not an absolute path either.
std::string MachineProfilePath();
// Loads the profile at MachineProfilePath(). If the CPU rates are for another machine, drops them and adds a
// line to `notes`. Returns nullopt if the file does not exist or nothing is left. Returns BadDataError if the
// file is damaged, or the error from reading it.
absl::StatusOr<std::optional<MachineProfile>> LoadMachineProfile(const cluster::Host& host,
                                                                 std::vector<std::string>& notes);

}  // namespace trainctl::simulate
