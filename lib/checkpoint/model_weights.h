// Checks that the weights on disk belong to a model: every parameter must exist with the right shape and a
// loadable type, in the form of the model's family, and any other tensor must have no effect on the model.
// Reads headers and manifests, and the values of a tensor only if they decide whether it has an effect. Used
// by `launch --dry-run`, `generate`, `eval` and the trainer. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/dtype.h"
#include "checkpoint/checkpoint_io.h"
#include "checkpoint/model_folder.h"
#include "model/architecture.h"
#include "model/parameters.h"

namespace trainctl::checkpoint {

// Whether the trainer can load weights of this type from a Hugging Face folder: F32, BF16 or F16.
bool IsLoadable(DType dtype);

// Returns BadDataError with one line for each wrong tensor, up to a limit. `path` names the folder in
// messages, and `parameters` are those of a whole model, as listed by Inventory. Accepts names without the
// prefix of the base model ("model.", for example), and tensors that have no effect: rotary tables, causal
// masks, all-zero biases and copies of the head. Adds the names of these tensors to `unused` unless it is
// null. Tied embeddings may be stored under either name, or under both names with the same values.
absl::Status CheckWeights(const std::string& path, const ModelFolder& folder,
                          absl::Span<const model::Parameter> parameters,
                          std::vector<std::string>* unused = nullptr);
// Returns the tensor that contains a parameter. The folder must have passed CheckWeights.
const ModelTensor& WeightsOf(const ModelFolder& folder, const model::Parameter& parameter);

// Like the above, for a checkpoint, whose optimizer state is ignored.
absl::Status CheckWeights(const std::string& path, const CheckpointReader& reader,
                          absl::Span<const model::Parameter> parameters);

// Open and check a Hugging Face folder (for model.weights = "from") or a checkpoint folder. Return
// EnvironmentError if a file is missing or unreadable, and BadDataError if a file is damaged or belongs to
// another model. `unused` has the same meaning as for CheckWeights.
absl::Status CheckModelFolder(const std::string& path, const model::Architecture& spec,
                              std::vector<std::string>* unused = nullptr);
absl::Status CheckCheckpointFolder(const std::string& path, const model::Architecture& spec);

}  // namespace trainctl::checkpoint
