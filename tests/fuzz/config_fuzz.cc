// Fuzzes config.json. An accepted text must describe a model whose parameters can be counted. A model that
// can be trained must be the same after it is written to a new config.json, or to an update of the original
// text.

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "model/config_json.h"
#include "model/update_config.h"

namespace trainctl::model {
namespace {

void FuzzOne(const std::string& input) {
  const absl::StatusOr<ConfigModel> model = ReadConfigJson(input, "config.json");
  if (!model.ok()) {
    TRAINCTL_CHECK(ExitCodeFor(model.status()) == ExitCode::kBadData && !model.status().message().empty());
    return;
  }
  TRAINCTL_CHECK(Validate(model->spec).ok());
  TRAINCTL_CHECK(!model->model_type.empty());
  const absl::StatusOr<Architecture> trained = FromHuggingFaceConfig(input, "config.json");
  if (!trained.ok()) return;
  TRAINCTL_CHECK(*trained == model->spec && CheckTrainable(*trained).ok());
  const std::string written = ToHuggingFaceConfig(*trained, DType::kBF16);
  TRAINCTL_CHECK(*FromHuggingFaceConfig(written, "config.json") == *trained);
  if (!ReadSpecialTokens(input, "config.json").ok()) return;
  const SpecialTokens tokens = {.eos = {7}};
  Architecture longer = *trained;
  SetNumLayers(longer, NumLayers(longer) + 1);
  for (const Architecture& spec : {*trained, longer}) {
    if (!CheckTrainable(spec).ok()) continue;
    const std::optional<std::string> updated = UpdateConfig(input, spec, DType::kBF16, tokens);
    TRAINCTL_CHECK(updated.has_value() && *FromHuggingFaceConfig(*updated, "config.json") == spec);
    TRAINCTL_CHECK(*ReadSpecialTokens(*updated, "config.json") == tokens);
  }
}

}  // namespace
}  // namespace trainctl::model

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  trainctl::model::FuzzOne(std::string(reinterpret_cast<const char*>(data), size_bytes));
  return 0;
}
