// Fuzzes the readers of what `trainctl calibrate` writes, of other machines and of this one: what they take
// is in range and is written and read as the same.

#include <cmath>
#include <cstdint>
#include <string>

#include "base/status.h"
#include "frameworks/hardware_profile.h"
#include "simulate/device_rates.h"
#include "simulate/machine.h"

namespace trainctl::frameworks {
namespace {

void FuzzOne(const std::string& input) {
  const auto profile = ParseProfile(input, "fuzz.json");
  if (!profile.ok()) {
    TRAINCTL_CHECK(ExitCodeFor(profile.status()) == ExitCode::kBadData &&
                   !profile.status().message().empty());
    return;
  }
  for (const auto& [name, member] : TuningConstants()) {
    TRAINCTL_CHECK(profile->tuning.*member >= kLeastMultiplier && profile->tuning.*member <= kMostMultiplier);
  }
  const std::string text = ProfileToJson(*profile);
  const auto again = ParseProfile(text, "again.json");
  TRAINCTL_CHECK_MSG(again.ok(), again.status().message());
  TRAINCTL_CHECK(ProfileToJson(*again) == text);
}

void FuzzMachine(const std::string& input) {
  const auto machine = simulate::MachineFromJson(input, "fuzz.json");
  if (!machine.ok()) {
    TRAINCTL_CHECK(ExitCodeFor(machine.status()) == ExitCode::kBadData &&
                   !machine.status().message().empty());
    return;
  }
  const std::string text = simulate::MachineToJson(*machine);
  const auto again = simulate::MachineFromJson(text, "again.json");
  TRAINCTL_CHECK_MSG(again.ok(), again.status().message());
  TRAINCTL_CHECK(simulate::MachineToJson(*again) == text);
  const auto h100 = *cluster::MachineOf({.device = "h100-sxm-80gb"});
  for (const simulate::MeasuredDevice& device : machine->devices) {
    for (const simulate::Rates& rates :
         {simulate::DeviceRates(h100, DType::kBF16, simulate::FasterAttention(device), &device),
          simulate::UnknownDeviceRates(DType::kF32, simulate::FasterAttention(device), &device)}) {
      for (const double seconds : rates.seconds_per_unit)
        TRAINCTL_CHECK(std::isfinite(seconds) && seconds >= 0);
      TRAINCTL_CHECK(std::isfinite(rates.scales.products) && rates.scales.products > 0);
    }
  }
}

}  // namespace
}  // namespace trainctl::frameworks

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  const std::string input(reinterpret_cast<const char*>(data), size_bytes);
  trainctl::frameworks::FuzzOne(input);
  trainctl::frameworks::FuzzMachine(input);
  return 0;
}
