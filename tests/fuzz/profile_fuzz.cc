// Fuzzes the reader of hardware profiles: what it takes is in range and is written and read as the same.

#include <cstdint>
#include <string>

#include "base/status.h"
#include "frameworks/hardware_profile.h"

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

}  // namespace
}  // namespace trainctl::frameworks

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  trainctl::frameworks::FuzzOne(std::string(reinterpret_cast<const char*>(data), size_bytes));
  return 0;
}
