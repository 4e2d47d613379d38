#include "data/unused_prompts.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "data/jsonl_line.h"
#include "data/unpacked_file.h"

namespace trainctl::data {

std::string FindUnusedPrompt(const std::string& file, absl::string_view text_field) {
  absl::StatusOr<UnpackedFile> opened = UnpackedFile::Open(file);
  if (!opened.ok()) return "";
  // A first line that is longer than one piece is truncated here. FieldNames returns no names if the line
  // ends within a value.
  const absl::StatusOr<absl::Span<const uint8_t>> piece = opened->Next();
  if (!piece.ok()) return "";
  absl::string_view line(reinterpret_cast<const char*>(piece->data()), piece->size());
  line = line.substr(0, line.find('\n'));
  const std::vector<std::string> names = FieldNames(line);
  for (const absl::string_view name : {"prompt", "question", "instruction"}) {
    if (name != text_field && std::find(names.begin(), names.end(), name) != names.end()) {
      return std::string(name);
    }
  }
  return "";
}

}  // namespace trainctl::data
