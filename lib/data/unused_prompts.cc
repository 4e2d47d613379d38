#include "data/unused_prompts.h"

#include <algorithm>
#include <vector>

#include "absl/status/statusor.h"
#include "data/example_fields.h"

namespace trainctl::data {

std::string FindUnusedPrompt(const std::string& file, absl::string_view text_field) {
  const absl::StatusOr<std::vector<std::string>> names = FieldNamesOfFirstLine(file);
  if (!names.ok()) return "";
  for (const absl::string_view name : {"prompt", "question", "instruction"}) {
    if (name != text_field && std::find(names->begin(), names->end(), name) != names->end()) {
      return std::string(name);
    }
  }
  return "";
}

}  // namespace trainctl::data
