// How the tensors of a Hugging Face folder contain the parameters of a model. In most families, each
// parameter is a tensor. Other families fuse modules or transpose matrices. Checkpoints do not: they contain
// the parameters as they are. Pure; thread-safe.
//
//   const FolderForm phi3 = {.qkv = "self_attn.qkv_proj", .gate_up = "mlp.gate_up_proj"};
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "model/parameter_names.h"

namespace trainctl::model {

struct Parameter;

// The form of a family's folders. The default is one tensor per parameter.
struct FolderForm {
  // Names of modules that contain several others, without ".weight" and ".bias", as in ParameterNames. Null
  // if the family has no such module.
  const char* qkv = nullptr;      // rows of the queries, then of the keys, then of the values
  const char* gate_up = nullptr;  // rows of the gate, then of the up projection
  // Whether `qkv` contains, for each key-value head in turn, the rows of its queries, its key and its value.
  bool by_kv_head = false;
  // Whether the matrices of layers are [in, out] (Conv1D in transformers).
  bool transposed = false;
};

// The place of a parameter in a folder. The rows of a parameter are blocks of `block` adjacent rows; a bias
// has rows of one element. Block i begins at row `first` + i * `period` of the tensor.
struct FolderPlace {
  std::string tensor;          // name of the tensor
  std::vector<int64_t> shape;  // shape of the tensor
  bool transposed = false;     // whether rows of the parameter are columns of the tensor
  int64_t block = 1;
  int64_t period = 1;
  int64_t first = 0;
};

// Adjacent rows.
struct RowRun {
  int64_t row = 0;    // first row
  int64_t count = 0;  // number of rows up to the end of the block
};
// Returns where the tensor contains the rows of a parameter from `row` on. The result counts columns of a
// transposed tensor.
RowRun RowInTensor(const FolderPlace& place, int64_t row);
// Returns the rows of the parameter that the tensor contains from `row` on, or nullopt if that row belongs to
// another parameter.
std::optional<RowRun> RowInParameter(const FolderPlace& place, int64_t row);

// Sets Parameter::folder of the parameters for which it is needed. `parameters` must be all parameters of a
// model, in the order of Inventory.
void SetFolderPlaces(const FolderForm& form, const ParameterNames& names, absl::Span<Parameter> parameters);
// Returns Parameter::folder or, if it is not set, a place that is a whole tensor.
FolderPlace PlaceInFolder(const Parameter& parameter);

}  // namespace trainctl::model
