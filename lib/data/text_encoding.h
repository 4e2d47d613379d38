// Recognizes the encoding of a text by its first bytes. Pure; thread-safe.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl::data {

// Returns the length of the UTF-8 byte order mark with which a text begins, which is not part of the text: 3,
// or 0 if there is none. Returns BadDataError, with the command that converts `path`, if `begin` is the
// beginning of UTF-16 or UTF-32 text with a byte order mark.
absl::StatusOr<size_t> ByteOrderMarkBytes(absl::string_view begin, const std::string& path);

}  // namespace trainctl::data
