// Reads the parameters of a model from the tensors of a Hugging Face folder, and writes such a folder from
// parameters. The tensors may contain the parameters in another form (model/folder_form.h). Does not convert
// elements. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/dtype.h"
#include "checkpoint/model_folder.h"
#include "layout/box.h"
#include "model/parameters.h"

namespace trainctl::checkpoint {

// Whole rows of a box of a parameter, as read from a folder.
struct ReadElements {
  const model::Parameter* parameter;
  const ModelTensor* tensor;  // the tensor that contains the elements
  model::FolderPlace place;   // the parameter's place in the tensor
  int64_t first_row;          // the parameter's row that contains the first element
  layout::Interval cols;      // the parameter's columns in the box
  int64_t position;           // index of the first element in the row-major order of the box
  absl::Span<const std::byte> bytes;

  // Returns the number of elements.
  int64_t count() const { return static_cast<int64_t>(bytes.size()) / DTypeBytes(tensor->dtype); }
  // Returns the row of the tensor that contains the element with this index.
  int64_t RowInTensor(int64_t index) const;
};

// Passes the elements of a parameter in `box` to `see`, in row-major order and in parts of up to about a
// million elements (four millions of a transposed tensor). Reads no others from the file. The folder must
// have passed CheckWeights. Returns BadDataError if the data are damaged, or if an element is NaN or
// infinite.
absl::Status ReadParameter(const ModelFolder& folder, const model::Parameter& parameter,
                           const layout::Box& box, absl::FunctionRef<absl::Status(const ReadElements&)> see);

// Fills `bytes` with elements of a parameter, which is an index into all parameters, from element `begin` on.
using ParameterReader =
    std::function<absl::Status(int parameter, int64_t begin, absl::Span<std::byte> bytes)>;

// Writes all parameters of a model with WriteModelFolder. Reads the elements of each parameter once and in
// order, but alternates between the parameters of a tensor. Holds transposed tensors in memory, one at a
// time.
absl::Status WriteParameters(const std::string& path, absl::Span<const model::Parameter> parameters,
                             DType dtype, const ParameterReader& read, int64_t max_shard_bytes);

}  // namespace trainctl::checkpoint
