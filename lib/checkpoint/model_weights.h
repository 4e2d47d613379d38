// Whether weights on disk are those of a model: every parameter is there, with its shape and a type that can
// be loaded, and no tensor is left over. Reads headers and manifests; of tensors only the two that a tied
// model may have of one embedding. `launch --dry-run` and the trainer both ask here. Thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/dtype.h"
#include "checkpoint/checkpoint_io.h"
#include "checkpoint/model_folder.h"
#include "model/model_spec.h"

namespace trainctl::checkpoint {

// Types of a Hugging Face folder's weights that the trainer converts: F32, BF16 and F16.
bool IsLoadable(DType dtype);

// BadDataError with a line for each tensor that is wrong, the first few of many. `path` names the folder.
// Rotary tables of old folders are passed over. A model whose embeddings are tied may have them under either
// name, or under both with the same bytes.
absl::Status CheckWeights(const std::string& path, const ModelFolder& folder,
                          absl::Span<const model::Parameter> parameters);
// The tensor of a parameter in a folder that CheckWeights has passed.
const ModelTensor& WeightsOf(const ModelFolder& folder, const std::string& parameter);

// BadDataError: an element of `bytes`, which are the tensor's from its `begin`-th element on, is NaN or
// infinite. Names the tensor and the row.
absl::Status CheckFinite(const ModelTensor& tensor, int64_t begin, absl::Span<const std::byte> bytes);

// The same of a checkpoint, whose optimizer state is not looked at.
absl::Status CheckWeights(const std::string& path, const CheckpointReader& reader,
                          absl::Span<const model::Parameter> parameters);

// Opens and checks the folder of model.weights = "from", and a checkpoint folder. EnvironmentError where a
// file is absent or may not be read, BadDataError where one is damaged or of another model.
absl::Status CheckModelFolder(const std::string& path, const model::ModelSpec& spec);
absl::Status CheckCheckpointFolder(const std::string& path, const model::ModelSpec& spec);

}  // namespace trainctl::checkpoint
