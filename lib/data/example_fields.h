// Finds the fields of prompts and answers in data files for fine-tuning. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace trainctl::data {

// Returns the names of the fields in the first line of a JSONL file, which may be compressed. Empty if the
// line is not a JSON object. If the line is longer than a piece of the file (unpacked_file.h), may return
// only the first names or none. Returns the errors of UnpackedFile.
absl::StatusOr<std::vector<std::string>> FieldNamesOfFirstLine(const std::string& file);

// The fields of an example, as in a recipe.
struct ExampleFields {
  std::string prompt_field;  // empty if there is no prompt
  std::string text_field;    // empty if no known field contains the text
  bool operator==(const ExampleFields&) const = default;
};

// Recognizes the fields of common data sets: prompt with completion or text, instruction with output,
// question with answer, or only text.
ExampleFields FindExampleFields(absl::Span<const std::string> names);

}  // namespace trainctl::data
