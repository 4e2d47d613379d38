#include "planner/cluster_inputs.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "cluster/catalogue_names.h"
#include "pricing/config_json.h"
#include "pricing/known_models.h"

namespace trainctl::planner {
namespace {

using recipe::LoadedRecipe;

const pricing::KnownModel* KnownPreset(absl::string_view name) {
  const std::string key = pricing::Normalized(name);
  for (const pricing::KnownModel& model : pricing::KnownModels()) {
    if (key == model.pattern) return &model;
  }
  return nullptr;
}

std::string UnknownPreset(absl::string_view name) {
  std::vector<std::string> names = model::PresetNames();
  for (const pricing::KnownModel& model : pricing::KnownModels()) names.emplace_back(model.pattern);
  return absl::StrCat("model.preset = ", cluster::Quoted(name), " is not known; the nearest are ",
                      cluster::NearestNames(name, names), ". model.from = FOLDER takes any config.json");
}

// The dimensions beside a preset or folder; head sizes follow unless they were the model's own choice.
void OverrideSizes(const LoadedRecipe& loaded, pricing::Architecture& a) {
  const model::ModelSpec& spec = loaded.recipe.model.spec;
  const pricing::Architecture base = a;
  const auto stated = [&](const char* name) { return loaded.stated.count(absl::StrCat("model.", name)) > 0; };
  const auto take = [&](const char* name, int64_t value, int64_t& size) {
    if (stated(name)) size = value;
  };
  take("layers", spec.layers, a.layers);
  take("hidden", spec.hidden, a.hidden);
  take("heads", spec.heads, a.heads);
  take("ffn", spec.ffn, a.ffn);
  take("vocab", spec.vocab, a.vocab);
  if (stated("heads") && base.kv_heads == base.heads) a.kv_heads = a.heads;
  take("kv_heads", spec.kv_heads, a.kv_heads);
  if (base.head_dim * base.heads == base.hidden && a.heads > 0 && !a.latent.has_value()) {
    a.head_dim = a.hidden / a.heads;
  }
  take("head_dim", spec.head_dim, a.head_dim);
  if (stated("tie_embeddings")) a.tied_embeddings = spec.tie_embeddings;
  if (stated("qkv_bias")) a.qkv_bias = spec.qkv_bias;
  if (stated("mlp_bias")) a.linear_bias = spec.mlp_bias;
}

}  // namespace

std::string AtField(const LoadedRecipe& loaded, const std::string& path, absl::string_view message) {
  const auto origin = loaded.origin.find(path);
  const bool is_stated = loaded.stated.count(path) > 0 && origin != loaded.origin.end();
  return is_stated ? absl::StrCat(origin->second, ": ", message) : std::string(message);
}

absl::StatusOr<PlannedModel> ModelOf(const LoadedRecipe& loaded) {
  const recipe::ModelConfig& m = loaded.recipe.model;
  PlannedModel model;
  std::string where = "model.family";
  if (!m.beyond_spec) {
    model.name = m.preset.empty() ? m.spec.family : m.preset;
    model.architecture = pricing::FromModelSpec(m.spec);
    if (m.spec.mlp_bias) model.architecture.linear_bias = true;
  } else if (!m.from.empty()) {
    where = "model.from";
    const std::filesystem::path folder(m.from);
    model.name = (folder.has_filename() ? folder : folder.parent_path()).filename().string();
    TRAINCTL_ASSIGN_OR_RETURN(pricing::ConfigModel config,
                              pricing::FromConfigJson(m.config_json, absl::StrCat(m.from, "/config.json")));
    model.architecture = config.architecture;
    model.notes = std::move(config.notes);
    OverrideSizes(loaded, model.architecture);
  } else {
    where = "model.preset";
    const pricing::KnownModel* known = KnownPreset(m.preset);
    if (known == nullptr) return UsageError(AtField(loaded, where, UnknownPreset(m.preset)));
    model.name = m.preset;
    model.architecture = known->architecture;
    OverrideSizes(loaded, model.architecture);
  }
  const pricing::Architecture& a = model.architecture;
  if (a.heads > 0 && !a.latent.has_value() && loaded.stated.count("model.head_dim") == 0 &&
      a.head_dim * a.heads != a.hidden && a.hidden % a.heads != 0 && loaded.stated.count("model.heads") > 0) {
    return UsageError(AtField(loaded, "model.heads",
                              absl::StrCat("model.hidden (", a.hidden, ") is not a multiple of model.heads (",
                                           a.heads, "); change one of them or give model.head_dim")));
  }
  if (const absl::Status valid = pricing::Validate(a); !valid.ok()) {
    return UsageError(AtField(loaded, where, absl::StrCat("the model: ", valid.message())));
  }
  return model;
}

}  // namespace trainctl::planner
