// Opens the model of a one-process job (generate, eval, export), and sets the data that eval reads instead of
// the recipe's evaluation sets.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "recipe/recipe.h"
#include "run/run_folder.h"

namespace trainctl {

struct InferenceRequest {
  std::string run_dir;  // the run folder; empty for a Hugging Face folder
  std::string folder;   // the Hugging Face folder (absolute path); empty for a run
  // A file for eval to read, or empty for the recipe's evaluation sets.
  std::string data;
  // The fields of JSONL or Parquet in `data`. Empty for those of the first training source, or the defaults.
  std::string text_field, prompt_field;
  int64_t seq_len = 0;  // tokens per sequence, or 0 for the recipe's data.seq_len
};

struct InferenceModel {
  recipe::Recipe recipe;
  std::string files_path;          // the folder with the tokenizer's files and the ids of special tokens
  std::vector<std::string> notes;  // notes for the user, one sentence each
};

// UsageError if the request does not fit the model or the data, BadDataError if the folder cannot be used.
absl::StatusOr<InferenceModel> OpenInferenceModel(const InferenceRequest& request);

// The recipe stored in the run folder.
absl::StatusOr<recipe::Recipe> ReadStoredRecipe(const run::RunFolder& folder);

}  // namespace trainctl
