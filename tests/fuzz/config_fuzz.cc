// Fuzzes config.json what is taken must be a model that can be counted, and what can be trained must come
// back from the config.json that is written of it.

#include <cstdint>
#include <string>

#include "base/status.h"
#include "model/config_json.h"

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
}

}  // namespace
}  // namespace trainctl::model

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  trainctl::model::FuzzOne(std::string(reinterpret_cast<const char*>(data), size_bytes));
  return 0;
}
