#include "recipe/resolve_model.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/lfs_pointer.h"
#include "base/status.h"
#include "model/architecture.h"
#include "model/config_json.h"
#include "model/families.h"
#include "model/presets.h"
#include "recipe/model_folder.h"
#include "recipe/trained_model.h"

namespace trainctl::recipe {
namespace {

class ModelResolver {
 public:
  ModelResolver(const Draft& draft, const Access& access, absl::string_view what, Issues& issues,
                LoadedRecipe& loaded)
      : draft_(draft), access_(access), what_(what), issues_(issues), loaded_(loaded) {}

  std::string Run() {
    if (!ResolveBase()) return base_origin_;
    model::Architecture& spec = recipe().model.spec;
    const model::Architecture base = spec;
    SetScalingType(spec);
    for (const auto& [path, entry] : draft_.entries()) {
      if (!absl::StartsWith(path, "model.") || path == kLayerTypes || !entry.field->set) continue;
      entry.field->set(recipe(), 0, entry.value);
    }
    SetLayerTypes(spec);
    ReportIdleFields(spec);
    if (loaded_.purpose != Purpose::kWhatIf) DropUnusedKinds(spec);
    DeriveHeads(base, spec);
    return base_origin_;
  }

 private:
  static constexpr char kLayerTypes[] = "model.layer_types";
  static constexpr char kScalingType[] = "model.rope_scaling.type";

  // Comes after all other fields, because it needs the number of layers and the window.
  void SetLayerTypes(model::Architecture& spec) {
    const Entry* entry = draft_.Find(kLayerTypes);
    if (entry == nullptr) return;
    const absl::Status status = model::SetLayerTypes(spec, std::get<std::vector<std::string>>(entry->value));
    if (status.ok()) return;
    issues_.Add(Where(kLayerTypes), absl::StrCat(kLayerTypes, ": ", status.message()));
    issues_.MarkBad(kLayerTypes);
  }

  // The numbers of another type mean something else, so a new type begins without them.
  void SetScalingType(model::Architecture& spec) {
    const std::string* type = Text(kScalingType);
    if (type == nullptr || issues_.IsBad(kScalingType)) return;
    const model::RopeScalingKind kind = *model::FindRopeScalingKind(*type);
    std::optional<model::RopeScaling>& scaling = spec.rope.scaling;
    if (scaling.has_value() && scaling->kind == kind) return;
    scaling = model::RopeScaling{.kind = kind};
    for (const char* field : RequiredOf(kind)) {
      const std::string path = absl::StrCat("model.rope_scaling.", field);
      if (draft_.Find(path) != nullptr || issues_.IsBad(path)) continue;
      issues_.Add(Where(kScalingType), absl::StrCat(path, " is missing; ", *type, " scaling requires it"));
      issues_.MarkBad(path);
    }
  }

  static std::vector<const char*> RequiredOf(model::RopeScalingKind kind) {
    switch (kind) {
      case model::RopeScalingKind::kLlama3:
        break;  // those of Llama 3.1 are the defaults
      case model::RopeScalingKind::kLinear:
        return {"factor"};
      case model::RopeScalingKind::kYarn:
        return {"factor", "original_max_position"};
      case model::RopeScalingKind::kLongRope:
        return {"original_max_position", "attention_factor", "short_factor", "long_factor"};
      case model::RopeScalingKind::kDynamic:
        return {"factor", "original_max_position"};
      case model::RopeScalingKind::kNtkAlpha:
        return {"alpha"};
    }
    return {};
  }

  // Stated fields must not do nothing.
  void ReportIdleFields(const model::Architecture& spec) {
    const auto report = [&](const std::string& path, absl::string_view why) {
      if (draft_.Find(path) == nullptr) return;
      issues_.Add(Where(path), absl::StrCat(path, " has no effect, because ", why, "; remove it"));
      issues_.MarkBad(path);
    };
    if (model::WindowOf(spec) == 0 && !issues_.IsBad(kLayerTypes))
      report("model.sliding_window", "no layer in model.layer_types is \"sliding_attention\"");
    if (issues_.IsBad(kScalingType)) return;
    for (const auto& [path, entry] : draft_.entries()) {
      // `get` returns nullopt if the type of scaling does not use the field.
      if (!absl::StartsWith(path, "model.rope_scaling.") || path == kScalingType) continue;
      if (entry.field->get(recipe(), 0).has_value()) continue;
      report(path, absl::StrCat(model::NameOf(spec.rope.scaling->kind), " scaling does not use it"));
    }
  }

  Recipe& recipe() { return loaded_.recipe; }

  std::string Where(absl::string_view path) const { return draft_.OriginOf(path, what_); }

  const std::string* Text(absl::string_view path) const {
    const Entry* entry = draft_.Find(path);
    return entry == nullptr ? nullptr : std::get_if<std::string>(&entry->value);
  }

  // Reads the preset or folder. Returns false if the folder holds no model but a reference to one.
  bool ResolveBase() {
    if (const std::string* preset = Text("model.preset")) {
      SetBase("model.preset", model::Preset(*preset));
    } else if (const std::string* folder = Text("model.from")) {
      return ReadFolder(*folder);
    } else if (issues_.IsBad("model.family")) {
      issues_.MarkBad("model.spec");
    } else if (const std::string* family = Text("model.family")) {
      recipe().model.spec = model::BaseOfFamily(*family);
      RequireSizes();
    } else {
      if (!issues_.IsBad("model.preset") && !issues_.IsBad("model.from") && !issues_.IsBad("model.family") &&
          !issues_.IsBad("model")) {
        issues_.Add(what_, absl::StrCat("the model is missing; set model.preset (", PresetList(),
                                        "), model.from (a Hugging Face folder) or model.family"));
      }
      issues_.MarkBad("model.spec");
    }
    return true;
  }

  bool ReadFolder(const std::string& folder) {
    const std::string config = absl::StrCat(folder, "/config.json");
    const absl::StatusOr<std::string> text = access_.read_file(config);
    const absl::Status pointer = text.ok() ? RefuseLfsPointer(*text, config) : absl::OkStatus();
    if (!pointer.ok()) {
      issues_.AddBadData(Where("model.from"), absl::StrCat("model.from: ", pointer.message()));
      issues_.MarkBad("model.spec");
      return false;
    }
    SetBase("model.from",
            text.ok() ? ReadModel(*text, config)
                      : absl::Status(text.status().code(),
                                     absl::StrCat(text.status().message(), HowToFetch(folder, access_))));
    return true;
  }

  void RequireSizes() {
    for (const char* name : {"layers", "hidden", "heads", "ffn", "vocab"}) {
      const std::string path = absl::StrCat("model.", name);
      if (draft_.Find(path) != nullptr || issues_.IsBad(path)) continue;
      issues_.Add(Where("model.family"),
                  absl::StrCat(path, " is missing; with model.family, all sizes are required"));
      issues_.MarkBad(path);
    }
  }

  // An estimate accepts every model that can be described; training accepts only models that it computes
  // exactly.
  absl::StatusOr<model::Architecture> ReadModel(absl::string_view config_json, absl::string_view what) {
    if (loaded_.purpose != Purpose::kWhatIf) {
      TRAINCTL_ASSIGN_OR_RETURN(const model::ConfigModel model, ReadTrainedModel(config_json, what));
      if (!model.dropouts.empty()) {
        loaded_.notes.push_back(absl::StrCat(what, " has ", absl::StrJoin(model.dropouts, ", "),
                                             ", but trainctl trains without dropout"));
      }
      return model.spec;
    }
    // If the recipe has more layers than the folder, the rules of the folder's family determine the others.
    const Entry* layers = draft_.Find("model.layers");
    TRAINCTL_ASSIGN_OR_RETURN(
        const model::ConfigModel model,
        model::ReadConfigJson(config_json, what, layers == nullptr ? 0 : std::get<int64_t>(layers->value)));
    return model.spec;
  }

  static std::string PresetList() {
    const std::vector<std::string> names = model::PresetNames();
    return absl::StrJoin(names, ", ");
  }

  void SetBase(absl::string_view path, const absl::StatusOr<model::Architecture>& base) {
    if (base.ok()) {
      recipe().model.spec = *base;
      base_origin_ = absl::StrCat(Where(path), " (", path, ")");
      return;
    }
    const absl::string_view message = base.status().message();
    const std::string text =
        absl::StartsWith(message, path) ? std::string(message) : absl::StrCat(path, ": ", message);
    issues_.Add(Where(path), text);
    issues_.MarkBad("model.spec");
  }

  // Head sizes follow hidden and heads unless they are stated or were the base's own choice.
  void DeriveHeads(const model::Architecture& base, model::Architecture& spec) {
    const bool has_heads = draft_.Find("model.heads") != nullptr;
    const bool has_hidden = draft_.Find("model.hidden") != nullptr;
    const model::Attention& before = AttentionOf(base);
    if (draft_.Find("model.kv_heads") == nullptr && has_heads && before.kv_heads == before.heads) {
      SetEach(spec, &model::Attention::kv_heads, AttentionOf(spec).heads);
      loaded_.origin["model.kv_heads"] = absl::StrCat(Where("model.heads"), " (= model.heads)");
    }
    const bool own_size = before.head_dim * before.heads != base.hidden || before.latent.has_value();
    if (draft_.Find("model.head_dim") != nullptr || own_size || (!has_heads && !has_hidden)) return;
    const int64_t heads = AttentionOf(spec).heads;
    if (heads <= 0 || spec.hidden <= 0) return;
    const std::string where = Where(has_hidden ? "model.hidden" : "model.heads");
    if (spec.hidden % heads != 0) {
      issues_.Add(where, absl::StrCat("model.hidden (", spec.hidden, ") is not a multiple of model.heads (",
                                      heads, "); change one of them or set model.head_dim"));
      issues_.MarkBad("model.spec");
      return;
    }
    SetEach(spec, &model::Attention::head_dim, spec.hidden / heads);
    loaded_.origin["model.head_dim"] = absl::StrCat(where, " (model.hidden / model.heads)");
  }

  const Draft& draft_;
  const Access& access_;
  absl::string_view what_;
  Issues& issues_;
  LoadedRecipe& loaded_;
  std::string base_origin_ = "default";
};

}  // namespace

std::string ResolveModel(const Draft& draft, const Access& access, absl::string_view what, Issues& issues,
                         LoadedRecipe& loaded) {
  return ModelResolver(draft, access, what, issues, loaded).Run();
}

}  // namespace trainctl::recipe
