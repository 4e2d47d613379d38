#include "data/example_fields.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "base/status.h"
#include "data/jsonl_line.h"
#include "data/unpacked_file.h"

namespace trainctl::data {
namespace {

struct KnownFields {
  const char* prompt_field;
  const char* text_field;
};

// The first row whose fields are present applies.
constexpr KnownFields kKnownFields[] = {{"prompt", "completion"},
                                        {"prompt", "text"},
                                        {"instruction", "output"},
                                        {"question", "answer"},
                                        {"", "text"}};

}  // namespace

absl::StatusOr<std::vector<std::string>> FieldNamesOfFirstLine(const std::string& file) {
  TRAINCTL_ASSIGN_OR_RETURN(UnpackedFile opened, UnpackedFile::Open(file));
  TRAINCTL_ASSIGN_OR_RETURN(const absl::Span<const uint8_t> piece, opened.Next());
  // A first line that is longer than one piece is truncated here. FieldNames returns no names if the line
  // ends within a value.
  absl::string_view line(reinterpret_cast<const char*>(piece.data()), piece.size());
  return FieldNames(line.substr(0, line.find('\n')));
}

ExampleFields FindExampleFields(absl::Span<const std::string> names) {
  const auto has = [&](absl::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (const auto& [prompt_field, text_field] : kKnownFields) {
    if ((*prompt_field == '\0' || has(prompt_field)) && has(text_field)) return {prompt_field, text_field};
  }
  return {};
}

}  // namespace trainctl::data
