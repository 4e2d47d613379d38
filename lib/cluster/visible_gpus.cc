#include "cluster/visible_gpus.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status.h"

namespace trainctl::cluster {
namespace {

constexpr char kVariable[] = "CUDA_VISIBLE_DEVICES";

std::string Quoted(absl::string_view text) { return absl::StrCat("\"", absl::Utf8SafeCEscape(text), "\""); }

std::string CountOf(size_t count) { return absl::StrCat(count, count == 1 ? " GPU" : " GPUs"); }

// The number with which an entry begins; empty if it begins with none. What follows the digits is not read.
std::optional<int64_t> LeadingNumber(absl::string_view entry) {
  size_t length = !entry.empty() && (entry[0] == '+' || entry[0] == '-') ? 1 : 0;
  const size_t sign_length = length;
  while (length < entry.size() && absl::ascii_isdigit(static_cast<unsigned char>(entry[length]))) ++length;
  if (length == sign_length) return std::nullopt;
  int64_t number = 0;
  // More digits than an index can have are an index that no GPU has.
  if (!absl::SimpleAtoi(entry.substr(0, length), &number)) return -1;
  return number;
}

// Reads one value of the variable against one list of GPUs.
class Reader {
 public:
  Reader(const std::string& value, bool in_bus_order, absl::Span<const ListedGpu> listed)
      : value_(value), in_bus_order_(in_bus_order), listed_(listed) {}

  absl::StatusOr<VisibleGpus> Read() {
    bool has_number = false;
    for (const absl::string_view whole : absl::StrSplit(value_, ',')) {
      const absl::string_view entry = absl::StripAsciiWhitespace(whole);
      TRAINCTL_ASSIGN_OR_RETURN(const std::optional<VisibleGpu> found, Find(entry));
      if (!found.has_value()) {
        stopped_at_ = std::string(entry);
        break;
      }
      has_number |= LeadingNumber(entry).has_value();
      if (std::find(named_.begin(), named_.end(), *found) != named_.end()) return NamedTwice(entry, *found);
      named_.push_back(*found);
    }
    if (has_number && !in_bus_order_ && !AreAlike() && NumGpus() < listed_.size()) return WhichIsMeant();
    return VisibleGpus{named_, Hidden()};
  }

 private:
  // Empty: it names none.
  absl::StatusOr<std::optional<VisibleGpu>> Find(absl::string_view entry) const {
    if (absl::StartsWith(entry, "MIG-")) return FindInstance(entry);
    if (absl::StartsWith(entry, "GPU-")) return FindByUuid(entry);
    const std::optional<int64_t> number = LeadingNumber(entry);
    if (!number.has_value() || *number < 0 || *number >= static_cast<int64_t>(listed_.size())) {
      return std::nullopt;
    }
    return VisibleGpu{static_cast<size_t>(*number), std::nullopt};
  }

  absl::StatusOr<std::optional<VisibleGpu>> FindByUuid(absl::string_view entry) const {
    std::optional<VisibleGpu> found;
    for (size_t gpu = 0; gpu < listed_.size(); ++gpu) {
      const std::string& uuid = listed_[gpu].uuid;
      if (uuid.empty()) return NotListed(entry, "UUIDs", "use the GPU's number instead");
      if (!absl::StartsWith(uuid, entry)) continue;
      if (found.has_value()) {
        return EnvironmentError(absl::StrCat(
            Setting(), ": ", Quoted(entry), " matches both ", listed_[found->gpu].uuid, " and ", uuid,
            ", in which case CUDA shows no GPU at all; use more digits of the UUID (nvidia-smi -L)"));
      }
      found = VisibleGpu{gpu, std::nullopt};
    }
    return found;
  }

  absl::StatusOr<std::optional<VisibleGpu>> FindInstance(absl::string_view entry) const {
    bool are_listed = listed_.empty();
    for (size_t gpu = 0; gpu < listed_.size(); ++gpu) {
      const std::vector<MigInstance>& instances = listed_[gpu].instances;
      are_listed |= listed_[gpu].in_mig_mode;
      for (size_t i = 0; i < instances.size(); ++i) {
        if (entry == instances[i].uuid || entry == instances[i].path) return VisibleGpu{gpu, i};
      }
    }
    if (!are_listed) {
      return NotListed(entry, "MIG instances",
                       "check with nvidia-smi -L that the GPU is in MIG mode and visible to this process");
    }
    return std::nullopt;
  }

  size_t NumGpus() const {  // several instances may be of one
    std::set<size_t> gpus;
    for (const VisibleGpu& one : named_) gpus.insert(one.gpu);
    return gpus.size();
  }

  bool AreAlike() const {
    return std::all_of(listed_.begin(), listed_.end(),
                       [&](const ListedGpu& gpu) { return gpu.model == listed_[0].model; });
  }

  absl::Status NotListed(absl::string_view entry, absl::string_view what, absl::string_view advice) const {
    return EnvironmentError(absl::StrCat(Setting(), ": the driver lists no ", what, " on this machine, so ",
                                         Quoted(entry), " cannot be found; ", advice));
  }

  absl::Status NamedTwice(absl::string_view entry, const VisibleGpu& found) const {
    return EnvironmentError(absl::StrCat(
        Setting(), " names ",
        found.instance.has_value() ? std::string("a MIG instance") : absl::StrCat("GPU ", found.gpu),
        " twice, the second time as ", Quoted(entry),
        ", in which case CUDA shows no GPU at all; list each only once"));
  }

  absl::Status WhichIsMeant() const {
    const std::string models = absl::StrJoin(
        listed_, ", ", [](std::string* out, const ListedGpu& gpu) { absl::StrAppend(out, gpu.model); });
    return EnvironmentError(
        absl::StrCat(Setting(), " selects by number among different GPUs (", models,
                     "), and CUDA makes the fastest one number 0 unless CUDA_DEVICE_ORDER is PCI_BUS_ID, so "
                     "it is unclear which GPU is meant. Set CUDA_DEVICE_ORDER=PCI_BUS_ID to use nvidia-smi's "
                     "numbers, or use UUIDs (nvidia-smi -L)"));
  }

  std::string Setting() const { return absl::StrCat(kVariable, "=", Quoted(value_)); }

  std::string Hidden() const {
    const size_t num_gpus = NumGpus();
    if (num_gpus == listed_.size()) return "";
    std::string text = absl::StrCat(Setting(), " shows ", num_gpus == 0 ? "none" : absl::StrCat(num_gpus),
                                    " of this machine's ", CountOf(listed_.size()));
    if (stopped_at_.has_value() && !stopped_at_->empty() && *stopped_at_ != "-1") {
      absl::StrAppend(&text, " (CUDA stops at ", Quoted(*stopped_at_), ", which matches none of them)");
    }
    return text;
  }

  const std::string& value_;
  const bool in_bus_order_;
  const absl::Span<const ListedGpu> listed_;
  std::vector<VisibleGpu> named_;
  std::optional<std::string> stopped_at_;  // the first entry that names no GPU
};

// CUDA shows a single MIG instance, and then no other GPU. Of a GPU in MIG mode that is its first.
VisibleGpus WithOneInstance(VisibleGpus named, absl::Span<const ListedGpu> listed) {
  std::vector<VisibleGpu> whole;
  for (VisibleGpu& one : named.gpus) {
    const ListedGpu& gpu = listed[one.gpu];
    if (!gpu.in_mig_mode) {
      whole.push_back(one);
      continue;
    }
    if (gpu.instances.empty()) continue;  // nothing of it can be used
    if (!one.instance.has_value()) one.instance = 0;
    named.hidden =
        absl::StrCat(named.hidden, named.hidden.empty() ? "" : "; ",
                     "CUDA shows one MIG instance and no other GPU: ", gpu.instances[*one.instance].uuid,
                     " of GPU ", one.gpu);
    named.gpus = {one};
    return named;
  }
  if (whole.size() < named.gpus.size()) {
    absl::StrAppend(&named.hidden, named.hidden.empty() ? "" : "; ",
                    CountOf(named.gpus.size() - whole.size()), " in MIG mode without an instance");
  }
  named.gpus = std::move(whole);
  return named;
}

}  // namespace

GpuSelection ReadGpuSelection(const Environment& environment) {
  GpuSelection selection;
  if (const char* const value = environment(kVariable); value != nullptr) selection.visible_devices = value;
  const char* const order = environment("CUDA_DEVICE_ORDER");
  selection.in_bus_order = order != nullptr && absl::string_view(order) == "PCI_BUS_ID";
  return selection;
}

absl::StatusOr<VisibleGpus> FindVisibleGpus(const GpuSelection& selection,
                                            absl::Span<const ListedGpu> listed) {
  VisibleGpus named;
  if (selection.visible_devices.has_value()) {
    TRAINCTL_ASSIGN_OR_RETURN(named,
                              Reader(*selection.visible_devices, selection.in_bus_order, listed).Read());
  } else {
    for (size_t gpu = 0; gpu < listed.size(); ++gpu) named.gpus.push_back({gpu, std::nullopt});
  }
  return WithOneInstance(std::move(named), listed);
}

}  // namespace trainctl::cluster
