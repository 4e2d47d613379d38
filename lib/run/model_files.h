// Copies files other than weights from a model's Hugging Face folder into the run: the special token ids and
// the tokenizer. `generate` and `export` use these copies because the original folder may no longer exist.
// Thread-safe.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace trainctl::run {

struct ModelFileSources {
  std::string folder;     // folder with a config.json; empty if the model came from another source
  std::string tokenizer;  // file that tokenized the run's texts; empty if tokens are bytes
};

// Copies config.json and generation_config.json from `folder`. Also copies the tokenizer's files from the
// folder that contains `tokenizer`, or from `folder` if `tokenizer` is empty, and gives each its standard
// name. Creates `to` only if there is something to copy. Returns BadDataError if a file is a Git LFS pointer.
absl::Status KeepModelFiles(const ModelFileSources& sources, const std::string& to);

// Whether `name` is a standard file name in a model folder, other than that of a weights file.
bool IsModelFile(absl::string_view name);

}  // namespace trainctl::run
