#include "simulate/machine.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/json.h"
#include "base/status.h"

namespace trainctl::simulate {
namespace {

// Threads that run at once, of each worker.
double RunningThreads(int64_t cores, int64_t workers, int64_t threads) {
  return std::min(static_cast<double>(threads), static_cast<double>(cores) / static_cast<double>(workers));
}

// What the processor does, as against the fixed costs and the links.
constexpr Resource kScaledByThreads[] = {
    Resource::kMatmulFlops,    Resource::kAttentionFlops,   Resource::kAttentionBackwardFlops,
    Resource::kAttentionTiles, Resource::kLogits,           Resource::kOperandBytes,
    Resource::kMovedBytes,     Resource::kOptimizerElements};

absl::StatusOr<MeasuredRates> ReadRates(const Json& json, const std::string& what) {
  MeasuredRates measured;
  TRAINCTL_ASSIGN_OR_RETURN(const std::string dtype, JsonString(json, "dtype", what));
  TRAINCTL_ASSIGN_OR_RETURN(measured.dtype, ParseDType(dtype));
  TRAINCTL_ASSIGN_OR_RETURN(measured.workers, JsonInt(json, "workers", what));
  TRAINCTL_ASSIGN_OR_RETURN(measured.threads, JsonInt(json, "threads", what));
  if (measured.workers < 1 || measured.threads < 1 || measured.workers > 4096 || measured.threads > 4096) {
    return BadDataError(absl::StrCat(what, ": workers and threads must be from 1 to 4096"));
  }
  const auto seconds = json.find("seconds_per_unit");
  if (seconds == json.end() || !seconds->is_object()) {
    return BadDataError(absl::StrCat(what, ": field 'seconds_per_unit' must be an object"));
  }
  for (int i = 0; i < kNumResources; ++i) {
    const auto resource = static_cast<Resource>(i);
    // Profiles of versions that did not measure it.
    if (resource == Resource::kTensorExchanges && !seconds->contains(ResourceName(resource))) {
      measured.rates[resource] = CpuRates(1, measured.dtype, /*native_bf16=*/true)[resource];
      continue;
    }
    TRAINCTL_ASSIGN_OR_RETURN(measured.rates[resource],
                              JsonDouble(*seconds, ResourceName(resource), what + ": seconds_per_unit"));
    if (!std::isfinite(measured.rates[resource]) || measured.rates[resource] < 0) {
      return BadDataError(absl::StrCat(what, ": seconds_per_unit.", ResourceName(resource), " is below 0"));
    }
  }
  measured.rates.overlap = false;
  measured.rates.measured = true;
  return measured;
}

}  // namespace

std::optional<Rates> MachineProfile::RatesFor(DType dtype, int64_t workers, int64_t threads) const {
  const MeasuredRates* nearest = nullptr;
  double nearest_distance = 0;
  for (const MeasuredRates& candidate : measured) {
    if (candidate.dtype != dtype) continue;
    const auto distance = [](int64_t a, int64_t b) {
      return std::abs(std::log(static_cast<double>(a) / static_cast<double>(b)));
    };
    const double apart = distance(candidate.workers, workers) + distance(candidate.threads, threads);
    if (nearest == nullptr || apart < nearest_distance) {
      nearest = &candidate;
      nearest_distance = apart;
    }
  }
  if (nearest == nullptr) return std::nullopt;
  Rates rates = nearest->rates;
  const double scale =
      RunningThreads(cores, nearest->workers, nearest->threads) / RunningThreads(cores, workers, threads);
  for (Resource resource : kScaledByThreads) rates[resource] *= scale;
  return rates;
}

const MeasuredDevice* MachineProfile::FindDevice(absl::string_view name) const {
  const auto found = std::find_if(devices.begin(), devices.end(),
                                  [&](const MeasuredDevice& device) { return device.name == name; });
  return found == devices.end() ? nullptr : &*found;
}

std::string MachineToJson(const MachineProfile& profile) {
  Json json = {{"schema", kMachineSchema},
               {"cpu", profile.cpu},
               {"cores", profile.cores},
               {"measured", Json::array()}};
  for (const MeasuredRates& measured : profile.measured) {
    Json seconds = Json::object();
    for (int i = 0; i < kNumResources; ++i) {
      const auto resource = static_cast<Resource>(i);
      seconds[std::string(ResourceName(resource))] = measured.rates[resource];
    }
    json["measured"].push_back({{"dtype", std::string(DTypeName(measured.dtype))},
                                {"workers", measured.workers},
                                {"threads", measured.threads},
                                {"seconds_per_unit", seconds}});
  }
  if (!profile.devices.empty()) json["devices"] = Json::array();
  for (const MeasuredDevice& device : profile.devices) json["devices"].push_back(ToJson(device));
  return FormatJson(json, 2) + "\n";
}

absl::StatusOr<MachineProfile> MachineFromJson(absl::string_view text, absl::string_view what) {
  const std::string where(what);
  TRAINCTL_ASSIGN_OR_RETURN(const Json json, ParseJson(text, what));
  if (!json.is_object()) return BadDataError(absl::StrCat(where, ": must be an object"));
  TRAINCTL_ASSIGN_OR_RETURN(const std::string schema, JsonString(json, "schema", where));
  if (schema != kMachineSchema) {
    return BadDataError(absl::StrCat(where, ": schema is \"", schema, "\", not \"", kMachineSchema,
                                     "\"; measure again with: trainctl calibrate"));
  }
  MachineProfile profile;
  TRAINCTL_ASSIGN_OR_RETURN(profile.cpu, JsonString(json, "cpu", where));
  TRAINCTL_ASSIGN_OR_RETURN(profile.cores, JsonInt(json, "cores", where));
  if (profile.cores < 1) return BadDataError(absl::StrCat(where, ": field 'cores' must be at least 1"));
  const auto measured = json.find("measured");
  if (measured == json.end() || !measured->is_array()) {
    return BadDataError(absl::StrCat(where, ": field 'measured' must be a list"));
  }
  for (size_t i = 0; i < measured->size(); ++i) {
    TRAINCTL_ASSIGN_OR_RETURN(MeasuredRates rates,
                              ReadRates((*measured)[i], absl::StrCat(where, ": measured[", i, "]")));
    profile.measured.push_back(std::move(rates));
  }
  const auto devices = json.find("devices");  // of a profile of a CPU alone there are none
  if (devices == json.end()) return profile;
  if (!devices->is_array()) return BadDataError(absl::StrCat(where, ": field 'devices' must be a list"));
  for (size_t i = 0; i < devices->size(); ++i) {
    TRAINCTL_ASSIGN_OR_RETURN(
        profile.devices.emplace_back(),
        MeasuredDeviceFromJson((*devices)[i], absl::StrCat(where, ": devices[", i, "]")));
  }
  return profile;
}

std::string MachineProfilePath() {
  const char* const config = std::getenv("XDG_CONFIG_HOME");
  if (config != nullptr && *config == '/') return absl::StrCat(config, "/trainctl/machine.json");
  const char* const home = std::getenv("HOME");
  if (home != nullptr && *home == '/') return absl::StrCat(home, "/.config/trainctl/machine.json");
  return "";
}

absl::StatusOr<std::optional<MachineProfile>> LoadMachineProfile(const cluster::Host& host,
                                                                 std::vector<std::string>& notes) {
  const std::string path = MachineProfilePath();
  if (path.empty() || !PathExists(path)) return std::nullopt;
  TRAINCTL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  TRAINCTL_ASSIGN_OR_RETURN(MachineProfile profile, MachineFromJson(text, path));
  if (!profile.IsOf(host)) {
    if (!profile.measured.empty()) {
      notes.push_back(absl::StrCat(path, " was measured on ", profile.cpu, " with ", profile.cores,
                                   " cores, not on this machine; measure again with: trainctl calibrate"));
      profile.measured.clear();
    }
    if (profile.devices.empty()) return std::nullopt;  // devices are what their names say, whatever the CPU
  }
  return profile;
}

}  // namespace trainctl::simulate
