// What a run keeps of its model's Hugging Face folder besides weights: the ids of special tokens and the
// tokenizer's files, by which text is generated and which an export hands on. The folder itself may be gone
// by then. Thread safe.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace trainctl::run {

struct ModelFileSources {
  std::string folder;     // with a config.json; empty: the model was described otherwise
  std::string tokenizer;  // the file that made the run's texts into tokens; empty: bytes are tokens
};

// Copies config.json and generation_config.json of the folder, and the tokenizer's files: those that lie with
// `tokenizer`, or in the folder where there is none. A tokenizer file of another name gets its usual one.
// Makes `to` if there is something to keep. BadDataError for a Git LFS pointer.
absl::Status KeepModelFiles(const ModelFileSources& sources, const std::string& to);

// Whether a file of this name belongs to a model's folder and holds no weights.
bool IsModelFile(absl::string_view name);

}  // namespace trainctl::run
