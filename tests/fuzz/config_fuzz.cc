// Fuzzes config.json as the planner reads it: what is taken must be a model that can be counted.

#include <cstdint>
#include <string>

#include "base/status.h"
#include "pricing/config_json.h"

namespace trainctl::pricing {
namespace {

void FuzzOne(const std::string& input) {
  const absl::StatusOr<ConfigModel> model = FromConfigJson(input, "config.json");
  if (!model.ok()) {
    TRAINCTL_CHECK(ExitCodeFor(model.status()) == ExitCode::kBadData && !model.status().message().empty());
    return;
  }
  TRAINCTL_CHECK(Validate(model->spec).ok());
  TRAINCTL_CHECK(!model->model_type.empty());
}

}  // namespace
}  // namespace trainctl::pricing

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  trainctl::pricing::FuzzOne(std::string(reinterpret_cast<const char*>(data), size_bytes));
  return 0;
}
