#include "checkpoint/odd_weights.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace trainctl::checkpoint {

void OddWeights::See(const ReadElements& elements, absl::Span<const float> values) {
  const std::string& tensor = elements.tensor->name;
  float most = 0;
  for (const float value : values) most = std::max(most, std::abs(value));
  if (most > 0) nonzero_.insert(elements.parameter->name);
  if (most <= kHugeWeight) return;
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::abs(values[i]) <= kHugeWeight) continue;
    const int64_t row = elements.RowInTensor(static_cast<int64_t>(i));
    Huge& found = huge_.try_emplace(tensor, Huge{.row = row, .value = values[i]}).first->second;
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
