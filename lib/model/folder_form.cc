#include "model/folder_form.h"

#include <initializer_list>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "model/parameters.h"

namespace trainctl::model {
namespace {

// Returns what follows the name of one of `modules` in `name`, or an empty string if `name` belongs to
// another module.
absl::string_view SuffixIn(absl::string_view name, std::initializer_list<const char*> modules) {
  for (const char* module : modules) {
    absl::string_view suffix = name;
    if (module != nullptr && absl::ConsumePrefix(&suffix, module) &&
        (suffix == ".weight" || suffix == ".bias")) {
      return suffix;
    }
  }
  return "";
}

struct Tensor {
  std::string name;
  bool is_qkv = false;
  bool is_in_layer = false;
};

// Returns the tensor that contains a parameter.
Tensor TensorOf(const Parameter& parameter, const FolderForm& form, const ParameterNames& names) {
  const std::string layer = absl::StrCat(names.layers, parameter.block - 1, ".");
  absl::string_view name = parameter.name;
  if (!absl::ConsumePrefix(&name, layer)) return {parameter.name};
  const absl::string_view of_qkv = SuffixIn(name, {names.query, names.key, names.value});
  if (form.qkv != nullptr && !of_qkv.empty()) return {absl::StrCat(layer, form.qkv, of_qkv), true, true};
  const absl::string_view of_gate_up = SuffixIn(name, {names.gate, names.up});
  if (form.gate_up != nullptr && !of_gate_up.empty()) {
    return {absl::StrCat(layer, form.gate_up, of_gate_up), false, true};
  }
  return {parameter.name, false, true};
}

}  // namespace

RowRun RowInTensor(const FolderPlace& place, int64_t row) {
  const int64_t in_block = row % place.block;
  return {place.first + row / place.block * place.period + in_block, place.block - in_block};
}

std::optional<RowRun> RowInParameter(const FolderPlace& place, int64_t row) {
  const int64_t in_block = row % place.period - place.first;
  if (in_block < 0 || in_block >= place.block) return std::nullopt;
  return RowRun{row / place.period * place.block + in_block, place.block - in_block};
}

void SetFolderPlaces(const FolderForm& form, const ParameterNames& names, absl::Span<Parameter> parameters) {
  if (form.qkv == nullptr && form.gate_up == nullptr && !form.transposed) return;
  for (size_t begin = 0, end = 0; begin < parameters.size(); begin = end) {
    const Tensor tensor = TensorOf(parameters[begin], form, names);
    int64_t rows = 0;
    for (; end < parameters.size() && TensorOf(parameters[end], form, names).name == tensor.name; ++end) {
      rows += parameters[end].shape[0];
    }
    const Parameter& last = parameters[end - 1];
    std::vector<int64_t> shape = last.shape;
    shape[0] = rows;
    const bool is_transposed = form.transposed && tensor.is_in_layer && shape.size() == 2;
    if (is_transposed) std::swap(shape[0], shape[1]);
    // The last parameter of `qkv` is the values, whose unit is a head.
    const int64_t groups = tensor.is_qkv && form.by_kv_head ? last.shape[0] / last.tensor_unit : 1;
    int64_t first = 0;
    for (Parameter& parameter : parameters.subspan(begin, end - begin)) {
      TRAINCTL_CHECK(parameter.shape[0] % groups == 0);
      const int64_t block = parameter.shape[0] / groups;
      parameter.folder = {tensor.name, shape, is_transposed, block, rows / groups, first};
      first += block;
    }
  }
}

FolderPlace PlaceInFolder(const Parameter& parameter) {
  if (parameter.folder.has_value()) return *parameter.folder;
  const int64_t rows = parameter.shape[0];
  return {parameter.name, parameter.shape, false, rows, rows, 0};
}

}  // namespace trainctl::model
