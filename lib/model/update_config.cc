#include "model/update_config.h"

#include <algorithm>
#include <initializer_list>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/json_text.h"
#include "base/status.h"
#include "model/config_json.h"
#include "model/families.h"
#include "model/neutral_fields.h"

namespace trainctl::model {
namespace {

// Keys inside the tables rope_scaling and rope_parameters.
constexpr char kTheta[] = "rope_theta";
constexpr char kShare[] = "partial_rotary_factor";
// Keys of the outermost object.
constexpr char kScaling[] = "rope_scaling";
constexpr char kParameters[] = "rope_parameters";
constexpr char kOriginal[] = "original_max_position_embeddings";

constexpr char kLayerTypes[] = "layer_types";

// Keys of the same field. ToHuggingFaceConfig writes one of each row.
const std::vector<std::vector<std::string>>& KeysOfSizes() {
  static const auto* keys = new std::vector<std::vector<std::string>>{
      {"num_hidden_layers", "n_layer", "n_layers", "num_layers"},
      {"hidden_size", "n_embd", "n_embed", "d_model"},
      {"num_attention_heads", "n_head", "n_heads"},
      {"intermediate_size", "n_inner", "ffn_dim"},
      {"max_position_embeddings", "n_positions", "max_seq_len"},
  };
  return *keys;
}

// Whether the layers and all other fields are equal. Ignores kinds that no layer uses.
bool AreSame(Architecture a, Architecture b) {
  DropUnusedKinds(a);
  DropUnusedKinds(b);
  return a == b;
}

class Updater {
 public:
  // `old_config` and `new_config` are the outputs of ToHuggingFaceConfig for the model that `text` describes
  // and for the model of the result.
  Updater(absl::string_view text, Json old_config, Json new_config)
      : text_(text),
        file_(ParseValidJson(text)),
        old_config_(std::move(old_config)),
        new_config_(std::move(new_config)),
        family_(*FindFamily(new_config_["model_type"].get<std::string>())) {}

  const std::string& text() const { return text_; }

  void SetTokens(const SpecialTokens& before, const SpecialTokens& now) {
    if (before.bos != now.bos) Copy("bos_token_id");
    if (before.eos != now.eos) Copy("eos_token_id");
    if (before.pad != now.pad) Copy("pad_token_id");
  }

  // transformers 5 writes `dtype`, and earlier versions `torch_dtype`.
  void SetDType() {
    const Json name = new_config_["torch_dtype"];
    const bool has_new_name = file_.contains("dtype");
    if (has_new_name) Set("dtype", name);
    if (!has_new_name || file_.contains("torch_dtype")) Set("torch_dtype", name);
  }

  // The file may be that of a model without its head, or name the class whose code the folder contains.
  void SetClass() {
    const bool is_of_code = family_.code_class != nullptr &&
                            file_.value("architectures", Json()) == Json::array({family_.code_class});
    if (!is_of_code) Copy("architectures");
  }

  void SetChangedFields() {
    for (const auto& [key, value] : new_config_.items()) {
      if (IsOfRope(key) || value == OldValueOf(key)) continue;
      const bool is_per_layer = key == kLayerTypes || key == "no_rope_layers";
      if (!is_per_layer || file_.contains(key)) SetEverySpelling(key, value);
    }
    if (IsRopeChanged()) SetRope();
    SetLayerTypes();
  }

  // A field that the file does not have may follow from those that were changed.
  void AddAbsentFields() {
    for (const auto& [key, value] : new_config_.items()) {
      if (!IsOfRope(key) && SpellingsOf(key).empty() && !IsNeutral(key, value)) Set(key, value);
    }
  }

 private:
  // These may be in a table, so SetRope sets them.
  bool IsOfRope(const std::string& key) const {
    return key == family_.rope_theta_key || key == family_.rope_share_key || key == kScaling ||
           (window_theta_key_ != nullptr && key == window_theta_key_) || key == kOriginal;
  }

  Json OldValueOf(const std::string& key) const {
    return old_config_.contains(key) ? old_config_[key] : Json();
  }

  void Set(const std::string& key, const Json& value) {
    if (file_.contains(key) && file_[key] == value) return;
    text_ = WithJsonField(text_, key, value);
    file_[key] = value;
  }

  void Copy(const std::string& key) {
    if (new_config_.contains(key)) Set(key, Json(new_config_[key]));
  }

  // Returns the keys of the file for the same field.
  std::vector<std::string> SpellingsOf(const std::string& key) const {
    std::vector<std::string> keys = {key};
    for (const std::vector<std::string>& row : KeysOfSizes()) {
      if (std::find(row.begin(), row.end(), key) != row.end()) keys = row;
    }
    keys.erase(
        std::remove_if(keys.begin(), keys.end(), [&](const auto& each) { return !file_.contains(each); }),
        keys.end());
    return keys;
  }

  void SetEverySpelling(const std::string& key, const Json& value) {
    const std::vector<std::string> spellings = SpellingsOf(key);
    for (const std::string& spelling : spellings) Set(spelling, value);
    if (spellings.empty()) Set(key, value);
  }

  bool IsRopeChanged() const {
    for (const auto& [key, value] : new_config_.items()) {
      if (IsOfRope(key) && value != OldValueOf(key)) return true;
    }
    return false;
  }

  // Returns the new content of a table.
  Json RopeTable(const Json& before, bool has_theta) const {
    Json table = before;
    if (new_config_[kScaling] != OldValueOf(kScaling)) table = new_config_[kScaling];
    if (table.is_null()) table = {{"rope_type", "default"}};
    if (has_theta || before.contains(kTheta)) table[kTheta] = new_config_[family_.rope_theta_key];
    if (before.contains(kShare) && new_config_.contains(family_.rope_share_key))
      table[kShare] = new_config_[family_.rope_share_key];
    return table;
  }

  void SetRope() {
    bool has_table = false;
    bool has_theta = false;  // whether a table has it
    bool has_share = false;
    bool has_window_theta = false;
    for (const char* key : {kScaling, kParameters}) {
      if (!file_.contains(key) || !file_[key].is_object()) continue;
      Json table = file_[key];
      const bool is_by_type = table.contains("sliding_attention");
      Json& of_most = is_by_type ? table["full_attention"] : table;
      of_most = RopeTable(of_most, /*has_theta=*/key == kParameters);
      if (is_by_type) {
        // Without a key of its own, it is that of the other layers.
        table["sliding_attention"][kTheta] =
            new_config_[window_theta_key_ != nullptr ? window_theta_key_ : family_.rope_theta_key];
        has_window_theta = true;
      }
      has_table = true;
      has_theta = has_theta || of_most.contains(kTheta);
      has_share = has_share || of_most.contains(kShare);
      Set(key, table);
    }
    if (!has_table && !new_config_[kScaling].is_null()) Copy(kScaling);
    if (!has_theta || file_.contains(family_.rope_theta_key)) Copy(family_.rope_theta_key);
    if (!has_share || file_.contains(family_.rope_share_key)) Copy(family_.rope_share_key);
    Copy(kOriginal);
    if (window_theta_key_ == nullptr) return;
    if (!has_window_theta || file_.contains(window_theta_key_)) Copy(window_theta_key_);
  }

  // A list that ToHuggingFaceConfig does not write, because all layers of the family are of one type.
  void SetLayerTypes() {
    const auto types = file_.find(kLayerTypes);
    const auto layers = new_config_["num_hidden_layers"].get<size_t>();
    if (new_config_.contains(kLayerTypes) || types == file_.end() || !types->is_array() || types->empty() ||
        types->size() == layers) {
      return;
    }
    Set(kLayerTypes, Json(std::vector<Json>(layers, types->front())));
  }

  std::string text_;
  Json file_;
  const Json old_config_;
  const Json new_config_;
  const Family& family_;
  const char* const window_theta_key_ = family_.window_rope_theta_key;
};

}  // namespace

std::optional<std::string> UpdateConfig(absl::string_view config_json, const Architecture& spec, DType dtype,
                                        const SpecialTokens& tokens) {
  constexpr char kWhat[] = "config.json";
  const absl::StatusOr<Architecture> described = FromHuggingFaceConfig(config_json, kWhat);
  const absl::StatusOr<SpecialTokens> special = ReadSpecialTokens(config_json, kWhat);
  if (!described.ok() || !special.ok() || FindFamilyOf(*described) != FindFamilyOf(spec)) return std::nullopt;
  Updater updater(config_json, ParseValidJson(ToHuggingFaceConfig(*described, dtype, tokens)),
                  ParseValidJson(ToHuggingFaceConfig(spec, dtype, tokens)));
  updater.SetTokens(*special, tokens);
  updater.SetDType();
  updater.SetClass();
  if (AreSame(*described, spec)) return updater.text();
  const auto is_right = [&] {
    const absl::StatusOr<Architecture> read = FromHuggingFaceConfig(updater.text(), kWhat);
    return read.ok() && AreSame(*read, spec);
  };
  updater.SetChangedFields();
  if (is_right()) return updater.text();
  updater.AddAbsentFields();
  if (is_right()) return updater.text();
  return std::nullopt;
}

}  // namespace trainctl::model
