#include "model/update_config.h"

#include <initializer_list>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/json_text.h"
#include "base/status.h"
#include "model/config_json.h"
#include "model/neutral_fields.h"

namespace trainctl::model {
namespace {

constexpr char kTheta[] = "rope_theta";
constexpr char kScaling[] = "rope_scaling";
constexpr char kParameters[] = "rope_parameters";
constexpr char kShare[] = "partial_rotary_factor";

class Updater {
 public:
  // `old_config` is what ToHuggingFaceConfig writes for the model of `text`, and `new_config` for that of the
  // result.
  Updater(absl::string_view text, Json old_config, Json new_config)
      : text_(text),
        file_(Json::parse(text)),
        old_config_(std::move(old_config)),
        new_config_(std::move(new_config)) {}

  const std::string& text() const { return text_; }

  void SetTokens(const SpecialTokens& before, const SpecialTokens& now) {
    if (before.bos != now.bos) Copy("bos_token_id");
    if (before.eos != now.eos) Copy("eos_token_id");
    if (before.pad != now.pad) Copy("pad_token_id");
  }

  // transformers 5 writes `dtype`, and earlier versions `torch_dtype`.
  void SetDType() {
    const Json& name = new_config_["torch_dtype"];
    const char* const key = file_.contains("dtype") ? "dtype" : "torch_dtype";
    for (const char* each : {"dtype", "torch_dtype"}) {
      if (file_.contains(each) ? file_[each] != name : each == absl::string_view(key)) Set(each, name);
    }
  }

  // The file may be that of a model without its head.
  void SetClass() {
    constexpr char kClass[] = "architectures";
    if (!file_.contains(kClass) || file_[kClass] != new_config_[kClass]) Copy(kClass);
  }

  void SetChangedFields() {
    for (const auto& [key, value] : new_config_.items()) {
      if (!IsOfRope(key) && value != OldValueOf(key)) Copy(key);
    }
    if (IsRopeChanged()) SetRope();
    SetLayerTypes();
  }

  // A field that the file does not have may follow from those that were changed.
  void AddAbsentFields() {
    for (const auto& [key, value] : new_config_.items()) {
      if (!IsOfRope(key) && !file_.contains(key) && !IsNeutral(key, value)) Copy(key);
    }
  }

 private:
  // These may be in a table, so SetRope sets them.
  static bool IsOfRope(const std::string& key) { return key == kTheta || key == kScaling || key == kShare; }

  Json OldValueOf(const std::string& key) const {
    return old_config_.contains(key) ? old_config_[key] : Json();
  }

  void Set(const std::string& key, const Json& value) {
    text_ = WithJsonField(text_, key, value);
    file_[key] = value;
  }

  void Copy(const std::string& key) { Set(key, new_config_[key]); }

  bool IsRopeChanged() const {
    for (const char* key : {kTheta, kScaling, kShare}) {
      if (new_config_.contains(key) && new_config_[key] != OldValueOf(key)) return true;
    }
    return false;
  }

  // Whether a table of the file has the field.
  bool HasInTable(const char* table, const char* key) const {
    return file_.contains(table) && file_[table].is_object() && file_[table].contains(key);
  }

  void SetRope() {
    const bool has_parameters = file_.contains(kParameters) && file_[kParameters].is_object();
    const bool has_scaling = file_.contains(kScaling) && file_[kScaling].is_object();
    bool has_share = false;
    for (const char* table : {kScaling, kParameters}) {
      if (table == kScaling ? !has_scaling : !has_parameters) continue;
      Json value = new_config_[kScaling];
      if (value.is_null()) value = {{"rope_type", "default"}};
      if (table == kParameters || HasInTable(table, kTheta)) value[kTheta] = new_config_[kTheta];
      if (HasInTable(table, kShare) && new_config_.contains(kShare)) {
        value[kShare] = new_config_[kShare];
        has_share = true;
      }
      Set(table, value);
    }
    if (!has_parameters && !has_scaling && !new_config_[kScaling].is_null()) Copy(kScaling);
    if (file_.contains(kTheta) || !has_parameters) Copy(kTheta);
    if (new_config_.contains(kShare) && (file_.contains(kShare) || !has_share)) Copy(kShare);
  }

  // All layers of trained models are of one type.
  void SetLayerTypes() {
    const auto types = file_.find("layer_types");
    const auto layers = new_config_["num_hidden_layers"].get<size_t>();
    if (types == file_.end() || !types->is_array() || types->empty() || types->size() == layers) return;
    Set("layer_types", Json(std::vector<Json>(layers, types->front())));
  }

  std::string text_;
  Json file_;
  const Json old_config_;
  Json new_config_;
};

}  // namespace

std::optional<std::string> UpdateConfig(absl::string_view config_json, const Architecture& spec, DType dtype,
                                        const SpecialTokens& tokens) {
  constexpr char kWhat[] = "config.json";
  const absl::StatusOr<Architecture> described = FromHuggingFaceConfig(config_json, kWhat);
  const absl::StatusOr<SpecialTokens> special = ReadSpecialTokens(config_json, kWhat);
  if (!described.ok() || !special.ok() || ModelTypeOf(*described) != ModelTypeOf(spec)) return std::nullopt;
  Updater updater(config_json, Json::parse(ToHuggingFaceConfig(*described, dtype, tokens)),
                  Json::parse(ToHuggingFaceConfig(spec, dtype, tokens)));
  updater.SetTokens(*special, tokens);
  updater.SetDType();
  updater.SetClass();
  if (*described == spec) return updater.text();
  const auto is_right = [&] {
    const absl::StatusOr<Architecture> read = FromHuggingFaceConfig(updater.text(), kWhat);
    return read.ok() && *read == spec;
  };
  updater.SetChangedFields();
  if (is_right()) return updater.text();
  updater.AddAbsentFields();
  if (is_right()) return updater.text();
  return std::nullopt;
}

}  // namespace trainctl::model
