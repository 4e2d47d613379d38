#include "checkpoint/odd_weights.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace trainctl::checkpoint {

void OddWeights::See(const ModelTensor& tensor, int64_t begin, absl::Span<const float> values) {
  float most = 0;
  for (const float value : values) most = std::max(most, std::abs(value));
  if (most > 0) nonzero_.insert(tensor.name);
  if (most <= kHugeWeight) return;
  int64_t row_size = 1;
  for (size_t i = 1; i < tensor.shape.size(); ++i) row_size *= tensor.shape[i];
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::abs(values[i]) <= kHugeWeight) continue;
    const int64_t row = (begin + static_cast<int64_t>(i)) / row_size;
    Huge& found = huge_.try_emplace(tensor.name, Huge{.row = row, .value = values[i]}).first->second;
    ++found.count;
  }
}

std::vector<std::string> OddWeights::HugeValues() const {
  constexpr size_t kMostLines = 5;
  std::vector<std::string> texts;
  for (const auto& [name, found] : huge_) {
    if (texts.size() == kMostLines) {
      texts.push_back(absl::StrCat(huge_.size() - kMostLines, " more tensors contain such values"));
      break;
    }
    texts.push_back(absl::StrFormat("%s: row %d contains %.3g", name, found.row, found.value));
    if (found.count > 1) {
      absl::StrAppend(&texts.back(), " and ", found.count - 1, " more such ",
                      found.count == 2 ? "value" : "values");
    }
  }
  return texts;
}

}  // namespace trainctl::checkpoint
