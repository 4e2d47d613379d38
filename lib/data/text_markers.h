// Finds end-of-text markers that are spelled out in text files, such as the <|endoftext|> between the stories
// of TinyStories. trainctl treats a text file as a single document, so these markers do not end documents.
// Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace trainctl::data {

struct TextMarker {
  std::string marker;      // for example "<|endoftext|>"
  int64_t count = 0;       // number of occurrences in the part that was checked
  std::string first_file;  // first of the given files that contains the marker
  bool operator==(const TextMarker&) const = default;
};

// Searches text files for the end-of-text markers of well-known models and for `own_end`, the spelling of the
// token that ends a document, if it is not empty. Checks up to 256 evenly spaced files. In each of them,
// checks up to 1 MiB, in evenly spaced pieces, or from the beginning if the file is compressed. Returns the
// markers found, in a fixed order. Skips unreadable files, which cause an error when the data is opened.
std::vector<TextMarker> FindTextMarkers(absl::Span<const std::string> files, absl::string_view own_end = "");

// Returns a sentence that lists the markers and their files and says what to do about them. Empty if
// `markers` is empty.
std::string FormatTextMarkers(absl::Span<const TextMarker> markers);

}  // namespace trainctl::data
