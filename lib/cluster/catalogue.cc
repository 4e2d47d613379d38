#include "cluster/catalogue.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/names.h"
#include "base/status.h"
#include "cluster/catalogue_rows.h"

namespace trainctl::cluster {
namespace {

// What a text says, as far as it is understood.
struct Wording {
  std::string family;
  std::vector<std::string> other_families;
  std::vector<std::string> forms;
  int memory_gb = 0;
  int watts = 0;
  bool power_limited = false;
  std::vector<std::string> unknown;
};

std::vector<std::string> Words(absl::string_view text) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : text) {
    if (absl::ascii_isalnum(c)) {
      word.push_back(absl::ascii_tolower(c));
    } else if (!word.empty()) {
      words.push_back(std::move(word));
      word.clear();
    }
  }
  if (!word.empty()) words.push_back(std::move(word));
  return words;
}

// The number of "80gb" or "700w" when `word` is digits and one of `units`.
int Quantity(absl::string_view word, std::initializer_list<absl::string_view> units) {
  for (absl::string_view unit : units) {
    absl::string_view digits = word;
    int value = 0;
    if (absl::ConsumeSuffix(&digits, unit) && !digits.empty() && digits.size() <= 6 &&
        std::all_of(digits.begin(), digits.end(), absl::ascii_isdigit) && absl::SimpleAtoi(digits, &value)) {
      return value;
    }
  }
  return 0;
}

bool IsFamily(absl::string_view word) {
  const auto& variants = Variants();
  return std::any_of(variants.begin(), variants.end(), [&](const Variant& v) { return word == v.family; });
}

// "sxm" of "sxm4", "pcie" of "pci"; empty when it is no form.
std::string Form(absl::string_view word) {
  if (absl::StartsWith(word, "sxm") && word.size() <= 4) return "sxm";
  if (word == "dgx" || word == "hgx") return "sxm";
  if (word == "pcie" || word == "pci") return "pcie";
  if (word == "nvl" || word == "nvl72" || word == "ada" || word == "oam" || word == "gcd" ||
      word == "hbm2e") {
    return std::string(word);
  }
  return "";
}

// Words that say nothing about which device is meant.
bool IsNoise(absl::string_view word) {
  constexpr absl::string_view kNoise[] = {
      "nvidia", "amd",        "instinct", "tesla", "geforce", "quadro", "gpu",   "gpus", "rtx",  "tensor",
      "core",   "generation", "ac",       "hbm2",  "hbm3",    "hbm3e",  "sm100", "sm90", "sm80", "superchip"};
  return std::find(std::begin(kNoise), std::end(kNoise), word) != std::end(kNoise);
}

// Words that make another device of a name: an RTX 3090 Ti is none of ours.
bool IsOtherModel(absl::string_view word) {
  constexpr absl::string_view kModels[] = {"ti", "super", "d", "s", "l", "x", "max", "mobile", "laptop"};
  return std::find(std::begin(kModels), std::end(kModels), word) != std::end(kModels);
}

// Splits "a100sxm4" and "rtx4090" into words; leaves "v100s" alone, which is another device.
std::vector<std::string> SplitGlued(const std::vector<std::string>& words) {
  std::vector<std::string> split;
  for (const std::string& whole : words) {
    absl::string_view word = whole;
    if (word.size() > 3 && absl::ConsumePrefix(&word, "rtx")) split.push_back("rtx");
    std::string family;
    for (const Variant& variant : Variants()) {
      const absl::string_view name = variant.family;
      if (!absl::StartsWith(word, name)) continue;
      const absl::string_view rest = word.substr(name.size());
      if (rest.empty() || !Form(rest).empty()) family = std::string(name);
    }
    if (family.empty()) {
      split.push_back(std::string(word));
      continue;
    }
    split.push_back(family);
    if (word.size() > family.size()) split.push_back(std::string(word.substr(family.size())));
  }
  return split;
}

Wording Read(absl::string_view text) {
  Wording wording;
  const std::vector<std::string> words = SplitGlued(Words(text));
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const bool next_is_unit = i + 1 < words.size() && (words[i + 1] == "gb" || words[i + 1] == "gib");
    if (next_is_unit && Quantity(word, {""}) > 0) {
      wording.memory_gb = Quantity(word, {""});
      ++i;
    } else if (Quantity(word, {"gb", "gib", "g"}) > 0) {
      wording.memory_gb = Quantity(word, {"gb", "gib", "g"});
    } else if (Quantity(word, {"w"}) > 0) {
      wording.watts = Quantity(word, {"w"});
    } else if (IsFamily(word)) {
      if (wording.family.empty()) {
        wording.family = word;
      } else if (word != wording.family) {
        wording.other_families.push_back(word);
      }
    } else if (!Form(word).empty()) {
      wording.forms.push_back(Form(word));
    } else if (word == "limited" && i > 0 && words[i - 1] == "power") {
      wording.power_limited = true;
    } else if (!IsNoise(word) && word != "power") {
      wording.unknown.push_back(word);
    }
  }
  return wording;
}

const Device* DeviceNamed(absl::string_view name) {
  for (const Device& device : Devices()) {
    if (name == device.name) return &device;
  }
  TRAINCTL_CHECK_MSG(false, "no device ", name);
  return nullptr;
}

bool Fits(const Variant& variant, const Wording& wording) {
  if (wording.family != variant.family) return false;
  for (const std::string& form : wording.forms) {
    if (std::find(variant.forms.begin(), variant.forms.end(), form) == variant.forms.end()) return false;
  }
  return wording.memory_gb == 0 || std::find(variant.memory_gb.begin(), variant.memory_gb.end(),
                                             wording.memory_gb) != variant.memory_gb.end();
}

std::string NamesOf(const std::vector<const Variant*>& variants) {
  return absl::StrJoin(variants, ", ",
                       [](std::string* out, const Variant* v) { absl::StrAppend(out, v->device); });
}

absl::Status Unknown(absl::string_view text) {
  std::vector<std::string> names;
  for (const Device& device : Devices()) names.push_back(device.name);
  return UsageError(absl::StrCat("the catalogue has no device ", QuotedName(text),
                                 "; nearest: ", NearestNames(text, names)));
}

// What was taken for granted about `device`, for the report.
std::string Assumption(const Wording& said, const Wording& note, const Device& device,
                       const std::vector<const Variant*>& fitting, bool memory_from_note) {
  std::vector<std::string> parts;
  if (fitting.size() > 1) {
    std::vector<const Variant*> others(fitting.begin() + 1, fitting.end());
    parts.push_back(
        absl::StrCat("interpreted as ", device.name, ", although the text also fits ", NamesOf(others)));
  } else if (memory_from_note) {
    parts.push_back(absl::StrCat("interpreted as ", device.name, " because of the memory in parentheses, ",
                                 note.memory_gb, " GB"));
  }
  if (!memory_from_note && said.memory_gb != 0 && note.memory_gb != 0 && said.memory_gb != note.memory_gb) {
    parts.push_back(absl::StrCat("the ", note.memory_gb, " GB in parentheses are ignored"));
  }
  if (said.memory_gb == 0 && note.memory_gb != 0 && !memory_from_note) {
    parts.push_back(absl::StrCat("the ", note.memory_gb, " GB in parentheses are ignored"));
  }
  for (const std::vector<std::string>& families : {said.other_families, note.other_families}) {
    for (const std::string& family : families) {
      if (family != said.family) parts.push_back(absl::StrCat("'", family, "' is ignored"));
    }
  }
  if (!note.family.empty() && note.family != said.family) {
    parts.push_back(absl::StrCat("'", note.family, "' in parentheses is ignored"));
  }
  if (said.power_limited || note.power_limited) {
    parts.push_back("the power limit is unknown and ignored, so estimates are too fast");
  }
  for (const int watts : {said.watts, note.watts}) {
    if (watts != 0 && !absl::StrContains(device.note, absl::StrCat(watts, " W"))) {
      parts.push_back(absl::StrCat("a limit of ", watts, " W is not modeled"));
    }
  }
  if (absl::string_view(device.name) == "mi250x-gcd" &&
      std::find(said.forms.begin(), said.forms.end(), "gcd") == said.forms.end()) {
    parts.push_back("each of the module's two dies counts as one device");
  }
  if (!said.unknown.empty()) {
    parts.push_back(absl::StrCat("not understood: ", QuotedName(absl::StrJoin(said.unknown, " "))));
  }
  return absl::StrJoin(parts, "; ");
}

}  // namespace

absl::StatusOr<DeviceMatch> FindDevice(absl::string_view text) {
  for (const Device& device : Devices()) {
    if (text == device.name) return DeviceMatch{&device, ""};
  }
  // The driver names a MIG instance by its GPU and its profile.
  if (const size_t mig = text.find(" MIG "); mig != absl::string_view::npos) {
    TRAINCTL_ASSIGN_OR_RETURN(DeviceMatch whole, FindDevice(text.substr(0, mig)));
    absl::StrAppend(&whole.assumption, whole.assumption.empty() ? "" : "; ",
                    "a MIG instance is planned with the rates of the whole GPU, so estimates are too fast");
    return whole;
  }
  const size_t parenthesis = text.find('(');
  const Wording said = Read(text.substr(0, parenthesis));
  const Wording note = parenthesis == absl::string_view::npos ? Wording() : Read(text.substr(parenthesis));
  if (said.family.empty()) {
    if (!Words(text).empty()) return Unknown(text);
    return UsageError("no device was specified; use a name such as h100-sxm-80gb");
  }
  // "6000" alone may be a card of three generations.
  if (said.family == "6000" && std::find(said.forms.begin(), said.forms.end(), "ada") == said.forms.end()) {
    return Unknown(text);
  }
  if (std::any_of(said.unknown.begin(), said.unknown.end(), IsOtherModel)) return Unknown(text);
  std::vector<const Variant*> fitting;
  bool memory_from_note = false;
  if (said.memory_gb == 0 && note.memory_gb != 0) {
    Wording with_memory = said;
    with_memory.memory_gb = note.memory_gb;
    for (const Variant& variant : Variants()) {
      if (Fits(variant, with_memory)) fitting.push_back(&variant);
    }
    memory_from_note = !fitting.empty();
  }
  if (fitting.empty()) {
    for (const Variant& variant : Variants()) {
      if (Fits(variant, said)) fitting.push_back(&variant);
    }
  }
  if (fitting.empty()) {
    std::vector<const Variant*> family;
    for (const Variant& variant : Variants()) {
      if (said.family == variant.family) family.push_back(&variant);
    }
    return UsageError(absl::StrCat("the catalogue has no device ", QuotedName(text), ": of ", said.family,
                                   " it has ", NamesOf(family)));
  }
  if (fitting.size() > 1 && !note.forms.empty()) {
    Wording with_form = said;
    with_form.forms.insert(with_form.forms.end(), note.forms.begin(), note.forms.end());
    std::vector<const Variant*> narrower;
    for (const Variant* variant : fitting) {
      if (Fits(*variant, with_form)) narrower.push_back(variant);
    }
    if (!narrower.empty()) fitting = narrower;
  }
  const Device* device = DeviceNamed(fitting.front()->device);
  return DeviceMatch{device, Assumption(said, note, *device, fitting, memory_from_note)};
}

}  // namespace trainctl::cluster
