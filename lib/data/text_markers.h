// Finds end-of-text markers that are written out in text files, such as the <|endoftext|> between the stories
// of TinyStories. To trainctl a text file is one document, so such a marker does not end one. Thread safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace trainctl::data {

struct TextMarker {
  std::string marker;      // "<|endoftext|>"
  int64_t count = 0;       // occurrences in the part that was checked
  std::string first_file;  // the first of the given files that has it
  bool operator==(const TextMarker&) const = default;
};

// The markers in the first MiB of each of the first 64 files, in a fixed order. Skips packed files and files
// that cannot be read: opening the data reports those.
std::vector<TextMarker> FindTextMarkers(absl::Span<const std::string> files);

// A sentence that names the markers, their files and what to do about them. Empty if there are no markers.
std::string FormatTextMarkers(absl::Span<const TextMarker> markers);

}  // namespace trainctl::data
