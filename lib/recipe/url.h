// Rejects URLs given as file names, and suggests the command that downloads them. Pure; thread-safe.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace trainctl::recipe {

// Returns UsageError if `text` is a URL. The message has the command that downloads it: `hf download` for
// models and data sets on the Hugging Face Hub, the store's own tool for object stores, and curl for other
// web addresses. `reader` is a command that reads standard input, or empty. If the download can be piped, the
// message also shows how to pipe it into `reader`.
absl::Status RefuseUrl(absl::string_view text, absl::string_view reader = "");

}  // namespace trainctl::recipe
