#include "model/config_rope.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "model/rope_scaling.h"

namespace trainctl::model {
namespace {

// A family in which heads are always rotated as a whole ignores other fractions, so they are refused.
void ReadRopeShare(ConfigReader& reader, const char* key, const Family& family, Architecture& spec) {
  if (!StatesRopeShare(family)) return reader.Only(key, 1.0);
  spec.rope.share = reader.Number({key}, spec.rope.share);
}

constexpr char kOriginal[] = "original_max_position_embeddings";

// Reads the context length of the model without scaling from a table. `outer` is the value outside of the
// table, which transformers prefers. Without either, transformers uses max_position_embeddings.
int64_t ReadOriginal(ConfigReader& reader, std::optional<int64_t> outer, const Architecture& spec) {
  const int64_t original = reader.Position({kOriginal}, outer.value_or(spec.max_position));
  if (outer.has_value() && original != *outer)
    reader.Refuse(kOriginal, absl::StrCat("the same as outside of the table (", *outer, ")"));
  return original;
}

RopeScaling ReadLlama3(ConfigReader& reader, std::optional<int64_t> outer, const Architecture& spec) {
  RopeScaling scaling;
  for (const auto& [key, value] : {std::pair{"factor", &scaling.factor},
                                   {"low_freq_factor", &scaling.low_freq_factor},
                                   {"high_freq_factor", &scaling.high_freq_factor}}) {
    if (reader.Find({key}) == nullptr) reader.Refuse(key, "a number");
    *value = reader.Number({key}, *value);
  }
  if (!outer.has_value() && reader.Find({kOriginal}) == nullptr) reader.Refuse(kOriginal, "a whole number");
  scaling.original_max_position = ReadOriginal(reader, outer, spec);
  return scaling;
}

// Linear scaling by 1 is none.
std::optional<RopeScaling> ReadLinear(ConfigReader& reader) {
  const double factor = reader.Number({"factor"}, 0);
  if (factor <= 0) reader.Refuse("factor", "a positive number");
  if (factor <= 0 || factor == 1) return std::nullopt;
  return RopeScaling{.factor = factor, .kind = RopeScalingKind::kLinear};
}

// transformers measures the length in max_position_embeddings and ignores an original length in the table.
RopeScaling ReadDynamic(ConfigReader& reader, const Architecture& spec) {
  if (reader.Find({"factor"}) == nullptr) reader.Refuse("factor", "a number");
  return {.factor = reader.Number({"factor"}, 1),
          .original_max_position = spec.max_position,
          .kind = RopeScalingKind::kDynamic};
}

// The type is "dynamic" too, but with an alpha the frequencies do not depend on the length. The rest are
// fields of published files that the class does not read then.
RopeScaling ReadNtkAlpha(ConfigReader& reader) {
  reader.Only("factor", 1.0);
  for (const char* unused : {"beta_fast", "beta_slow", "mscale", "mscale_all_dim"}) reader.Find({unused});
  return {.kind = RopeScalingKind::kNtkAlpha, .alpha = reader.Positive({"alpha"}, 0)};
}

// `mscale` and `mscale_all_dim` are another way to state the attention factor. transformers reads them only
// if both are there and not 0.
RopeScaling ReadYarn(ConfigReader& reader, std::optional<int64_t> outer, const Architecture& spec) {
  RopeScaling scaling = {.kind = RopeScalingKind::kYarn};
  if (reader.Find({"factor"}) == nullptr) reader.Refuse("factor", "a number");
  scaling.factor = reader.Number({"factor"}, scaling.factor);
  scaling.original_max_position = ReadOriginal(reader, outer, spec);
  scaling.beta_fast = reader.Number({"beta_fast"}, scaling.beta_fast);
  scaling.beta_slow = reader.Number({"beta_slow"}, scaling.beta_slow);
  const Json* truncate = reader.FindWithNull("truncate");
  const bool is_bool = truncate != nullptr && truncate->is_boolean();
  if (truncate != nullptr && !is_bool) reader.Refuse("truncate", "true or false");
  if (is_bool) scaling.truncate = truncate->get<bool>();
  const double mscale = reader.Number({"mscale"}, 0);
  const double mscale_all_dim = reader.Number({"mscale_all_dim"}, 0);
  if (reader.Find({"attention_factor"}) != nullptr) {
    scaling.attention_factor = reader.Positive({"attention_factor"}, 0);
  } else if (mscale != 0 && mscale_all_dim != 0) {
    const double growth = scaling.factor > 1 ? 0.1 * std::log(scaling.factor) : 0;
    scaling.attention_factor = (mscale * growth + 1) / (mscale_all_dim * growth + 1);
  }
  return scaling;
}

std::optional<std::vector<double>> ReadNumbers(ConfigReader& reader, const char* key) {
  const Json* list = reader.Find({key});
  if (list != nullptr && list->is_array() &&
      std::all_of(list->begin(), list->end(), [](const Json& item) { return item.is_number(); })) {
    return list->get<std::vector<double>>();
  }
  reader.Refuse(key, "a list of numbers");
  return std::nullopt;
}

// Returns the ratio of the context length to that of the model without scaling.
double GrowthOf(const Architecture& spec, const RopeScaling& scaling) {
  return static_cast<double>(spec.max_position) / static_cast<double>(scaling.original_max_position);
}

// Always states the attention factor, so that another max_position does not change what the weights compute.
std::optional<RopeScaling> ReadLongRope(ConfigReader& reader, std::optional<int64_t> outer,
                                        const Architecture& spec) {
  RopeScaling scaling = {.kind = RopeScalingKind::kLongRope};
  scaling.original_max_position = ReadOriginal(reader, outer, spec);
  const double factor = reader.Positive({"factor"}, GrowthOf(spec, scaling));
  scaling.attention_factor =
      reader.Positive({"attention_factor"}, LongRopeAttentionFactor(factor, scaling.original_max_position));
  std::optional<std::vector<double>> short_factor = ReadNumbers(reader, "short_factor");
  std::optional<std::vector<double>> long_factor = ReadNumbers(reader, "long_factor");
  if (!short_factor.has_value() || !long_factor.has_value()) return std::nullopt;
  scaling.short_factor = *std::move(short_factor);
  scaling.long_factor = *std::move(long_factor);
  return scaling;
}

bool HasOnlyLongRope(const Family& family) { return family.original_max_position > 0; }

// Returns the name of a kind of scaling that transformers uses now. "su" and "yarn" are names that early
// versions of Phi 3 had for LongRoPE.
Json CurrentRopeType(const Family& family, const Json& type) {
  return HasOnlyLongRope(family) && (type == "su" || type == "yarn") ? Json("longrope") : type;
}

// Reads `rope_scaling`, or `rope_parameters` of newer transformers (which contains rope_theta as well).
// `outer` is original_max_position_embeddings outside of the table.
std::vector<std::string> ReadRopeTable(const Json& object, const Family& family, std::optional<int64_t> outer,
                                       Architecture& spec) {
  const char* const must = HasOnlyLongRope(family)
                               ? "\"longrope\" or \"default\""
                               : "\"llama3\", \"linear\", \"yarn\", \"longrope\", \"dynamic\" or \"default\"";
  if (!object.is_object()) return {"must be an object"};
  ConfigReader reader(object, "", /*all_spellings=*/true);
  const Json* old_type = reader.Find({"type"});
  const Json* stated = reader.Find({"rope_type", "type"});
  if (stated == nullptr && object.contains("factor")) {
    reader.Refuse("rope_type", must);
    return reader.unknown_fields();
  }
  const Json type = stated == nullptr ? Json("default") : CurrentRopeType(family, *stated);
  if (old_type != nullptr && type != CurrentRopeType(family, *old_type))
    reader.Refuse("type", "equal to 'rope_type'");
  spec.rope.theta = reader.Number({"rope_theta"}, spec.rope.theta);
  ReadRopeShare(reader, "partial_rotary_factor", family, spec);
  const std::optional<RopeScalingKind> kind =
      type.is_string() ? FindRopeScalingKind(type.get<std::string>()) : std::nullopt;
  if (type == "default") {
    reader.Only("factor", 1.0);
  } else if (!kind.has_value() || kind == RopeScalingKind::kNtkAlpha ||
             (HasOnlyLongRope(family) && kind != RopeScalingKind::kLongRope)) {
    reader.Refuse(old_type == stated ? "type" : "rope_type",
                  absl::StrCat(must, " (no other scaling is implemented)"));
    return reader.unknown_fields();  // the fields of another type are not known
  } else if (kind == RopeScalingKind::kLlama3) {
    spec.rope.scaling = ReadLlama3(reader, outer, spec);
  } else if (kind == RopeScalingKind::kLinear) {
    spec.rope.scaling = ReadLinear(reader);
  } else if (kind == RopeScalingKind::kYarn) {
    spec.rope.scaling = ReadYarn(reader, outer, spec);
  } else if (kind == RopeScalingKind::kDynamic) {
    spec.rope.scaling = family.has_rope_alpha && reader.Find({"alpha"}) != nullptr
                            ? ReadNtkAlpha(reader)
                            : ReadDynamic(reader, spec);
  } else {
    spec.rope.scaling = ReadLongRope(reader, outer, spec);
  }
  reader.RefuseTheRest([](const std::string&, const Json& value) { return value.is_null(); });
  return reader.unknown_fields();
}

// Reads `rope_parameters` of a family whose layers with a window have separate positions. The field then
// contains a table for each of the two layer types. Returns the table of the layers without a window, or null
// if the field is absent.
const Json* ReadTablesByLayerType(ConfigReader& reader, const Family& family, Architecture& spec) {
  const Json* tables = reader.Find({"rope_parameters"});
  if (tables == nullptr || !tables->contains("sliding_attention")) return tables;
  constexpr char kWindowed[] = "rope_parameters: sliding_attention: ";
  Architecture windowed;
  windowed.rope.theta = spec.window_rope_theta > 0 ? spec.window_rope_theta : spec.rope.theta;
  for (const std::string& reason :
       ReadRopeTable((*tables)["sliding_attention"], family, std::nullopt, windowed))
    reader.Refuse(absl::StrCat(kWindowed, reason));
  if (windowed.rope.scaling.has_value())
    reader.Refuse(absl::StrCat(kWindowed, "rope_type must be \"default\" (nothing else is implemented)"));
  spec.window_rope_theta = windowed.rope.theta;
  const auto full = tables->find("full_attention");
  return full == tables->end() ? nullptr : &*full;
}

void ReadRopeTables(ConfigReader& reader, const Family& family, Architecture& spec) {
  spec.rope.theta = reader.Number({family.rope_theta_key}, family.rope_theta);
  spec.rope.share = family.rope_share;
  ReadRopeShare(reader, family.rope_share_key, family, spec);
  const double outer_theta = spec.rope.theta;
  const bool has_two = family.window_rope_theta > 0;
  const char* const window_key = family.window_rope_theta_key;
  if (has_two && window_key != nullptr)
    spec.window_rope_theta = reader.Number({window_key}, family.window_rope_theta);
  std::optional<int64_t> original;
  if (HasOnlyLongRope(family)) original = family.original_max_position;
  // With tables by layer type, transformers ignores it.
  if (!has_two && reader.Find({kOriginal}) != nullptr)
    original = reader.Position({kOriginal}, spec.max_position);
  const Rope outer = spec.rope;
  std::optional<Rope> first;
  for (const char* table : {"rope_scaling", "rope_parameters"}) {
    const bool is_by_type = has_two && absl::string_view(table) == "rope_parameters";
    const Json* object = is_by_type ? ReadTablesByLayerType(reader, family, spec) : reader.Find({table});
    if (object == nullptr) continue;
    spec.rope = outer;
    for (const std::string& reason : ReadRopeTable(*object, family, original, spec)) {
      reader.Refuse(absl::StrCat(table, ": ", reason));
    }
    if (first.has_value() && *first != spec.rope) {
      reader.Refuse("rope_scaling", "absent or state the same base, share and scaling as 'rope_parameters'");
    }
    first = spec.rope;
  }
  if (has_two && window_key == nullptr && spec.window_rope_theta == 0)
    spec.window_rope_theta = spec.rope.theta;
  if (reader.Find({family.rope_theta_key}) != nullptr && spec.rope.theta != outer_theta) {
    reader.Refuse(family.rope_theta_key,
                  absl::StrCat("the same as in the rope table (", spec.rope.theta, ")"));
  }
}

// Reads the number of rotated elements, of which config.json states the fraction in other families.
void ReadRotaryDim(ConfigReader& reader, const Family& family, Architecture& spec) {
  spec.rope.theta = family.rope_theta;
  const int64_t head_dim = AttentionOf(spec).head_dim;
  const int64_t rotary_dim = reader.Int({family.rotary_dim_key}, family.rotary_dim);
  if (rotary_dim < 1 || rotary_dim > head_dim) {
    return reader.Refuse(family.rotary_dim_key,
                         absl::StrCat("a whole number from 1 to the size of a head (", head_dim, ")"));
  }
  spec.rope.share = static_cast<double>(rotary_dim) / static_cast<double>(head_dim);
  // The product with the size of a head may be slightly too small, and RotatedDim truncates it.
  if (RotatedDim(spec) < rotary_dim) spec.rope.share = std::nextafter(spec.rope.share, 1);
}

// Returns `rope_scaling`. Its fields with default values are absent, as in published files.
Json ScalingTable(const Architecture& spec, const RopeScaling& scaling) {
  const RopeScaling usual;
  Json table = {{"rope_type", NameOf(scaling.kind)}};
  if (scaling.kind == RopeScalingKind::kLongRope) {
    // Versions of transformers before 5 accept three fields of Phi 3, and require the name "type".
    table = {{"type", NameOf(scaling.kind)},
             {"short_factor", scaling.short_factor},
             {"long_factor", scaling.long_factor}};
    if (scaling.attention_factor !=
        LongRopeAttentionFactor(GrowthOf(spec, scaling), scaling.original_max_position)) {
      table["attention_factor"] = scaling.attention_factor;
    }
    return table;
  }
  if (scaling.kind == RopeScalingKind::kNtkAlpha)
    return {{"rope_type", NameOf(RopeScalingKind::kDynamic)}, {"factor", 1.0}, {"alpha", scaling.alpha}};
  table["factor"] = scaling.factor;
  if (scaling.kind == RopeScalingKind::kLinear || scaling.kind == RopeScalingKind::kDynamic) return table;
  table[kOriginal] = scaling.original_max_position;
  if (scaling.kind == RopeScalingKind::kLlama3) {
    table["low_freq_factor"] = scaling.low_freq_factor;
    table["high_freq_factor"] = scaling.high_freq_factor;
    return table;
  }
  if (scaling.beta_fast != usual.beta_fast) table["beta_fast"] = scaling.beta_fast;
  if (scaling.beta_slow != usual.beta_slow) table["beta_slow"] = scaling.beta_slow;
  if (!scaling.truncate) table["truncate"] = false;
  if (scaling.attention_factor > 0) table["attention_factor"] = scaling.attention_factor;
  return table;
}

}  // namespace

void ReadRope(ConfigReader& reader, const Family& family, Architecture& spec) {
  if (family.rotary_dim_key != nullptr) return ReadRotaryDim(reader, family, spec);
  ReadRopeTables(reader, family, spec);
}

void WriteRope(const Family& family, const Architecture& spec, Json& config) {
  if (family.learned_positions) return;
  if (family.rotary_dim_key != nullptr) {
    config[family.rotary_dim_key] = RotatedDim(spec);
    return;
  }
  const std::optional<RopeScaling>& scaling = spec.rope.scaling;
  config[family.rope_theta_key] = spec.rope.theta;
  config["rope_scaling"] = scaling.has_value() ? ScalingTable(spec, *scaling) : Json(nullptr);
  // Outside of the table, where all versions of transformers find it.
  if (scaling.has_value() && scaling->kind == RopeScalingKind::kLongRope)
    config[kOriginal] = scaling->original_max_position;
  if (StatesRopeShare(family)) config[family.rope_share_key] = spec.rope.share;
  if (family.window_rope_theta == 0) return;
  if (family.window_rope_theta_key != nullptr) {
    config[family.window_rope_theta_key] = spec.window_rope_theta;
  } else if (spec.window_rope_theta != family.window_rope_theta) {
    // From rope_theta, transformers 5 takes only the base of the layers without a window.
    Json full = scaling.has_value() ? ScalingTable(spec, *scaling) : Json{{"rope_type", "default"}};
    full["rope_theta"] = spec.rope.theta;
    config["rope_parameters"] = {
        {"full_attention", full},
        {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", spec.window_rope_theta}}}};
  }
}

}  // namespace trainctl::model
