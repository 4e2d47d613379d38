// The starter recipe of `trainctl new --from`: fine-tuning of a Hugging Face folder. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "recipe/starter.h"

namespace trainctl::recipe {

// The model and its data.
struct FineTune {
  std::string model;           // value of model.from
  int64_t num_parameters = 0;  // parameters of the model
  int64_t max_position = 0;    // longest sequence of the model, in tokens
  int64_t num_workers = 1;     // train.batch_sequences becomes a multiple of this

  // Values of data.train[0].files. If there are none, the recipe has placeholders for the data.
  std::vector<std::string> files;
  bool has_fields = true;  // whether the files are JSONL or Parquet
  // Fields of an example. If `text_field` is empty, the recipe has placeholders for both.
  std::string prompt_field, text_field;
  bool has_conversations = false;        // the files contain conversations, which have to be rendered first
  std::vector<std::string> field_names;  // fields of the first example, for a comment; may be empty
  // Tokens of one epoch, including padding. If 0, because the data is not known, the length of the run is a
  // fixed number of steps; otherwise it is three epochs.
  int64_t epoch_tokens = 0;
};

// Returns a peak learning rate for fine-tuning all weights of a model of this size with AdamW.
double FineTuneLearningRate(int64_t num_parameters);

Starter FineTuneStarter(const FineTune& choices);

}  // namespace trainctl::recipe
