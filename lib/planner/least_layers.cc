#include "planner/least_layers.h"

#include <optional>
#include <utility>

#include "simulate/bounds.h"

namespace trainctl::planner {

int64_t LeastNumber::Next() const {
  if (IsKnown()) return std::min(high_, most_);
  if (!halves_) return low_ + 1;
  return Fits() ? (low_ + high_) / 2 : std::min(low_ + step_, most_);
}

void LeastNumber::Tell(bool fits) {
  if (IsKnown()) return;
  (fits ? high_ : low_) = Next();
  step_ *= 2;
}

LeastLayers::LeastLayers(std::vector<std::vector<int>> stages_of_class, std::vector<int64_t> stage_layers,
                         const std::vector<int64_t>& least, bool halves)
    : stages_of_class_(std::move(stages_of_class)), stage_layers_(std::move(stage_layers)) {
  for (const std::vector<int>& stages : stages_of_class_) {
    int64_t low = -1, most = 0;
    for (const int stage : stages) {
      low += least[static_cast<size_t>(stage)];
      most += stage_layers_[static_cast<size_t>(stage)];
    }
    numbers_.try_emplace(stages, low, most, halves);
  }
}

bool LeastLayers::IsKnown() const {
  return std::all_of(numbers_.begin(), numbers_.end(), [](const auto& n) { return n.second.IsKnown(); });
}

bool LeastLayers::AllFit() const {
  return std::all_of(numbers_.begin(), numbers_.end(), [](const auto& n) { return n.second.Fits(); });
}

template <typename NumberOf>
std::vector<int64_t> LeastLayers::Deal(const NumberOf& number_of) const {
  std::vector<int64_t> layers(stage_layers_.size(), 0);
  for (const auto& [stages, number] : numbers_) {
    const std::optional<std::vector<int64_t>> dealt =
        simulate::DealFirst(number_of(number), stages, stage_layers_);
    for (size_t k = 0; k < stages.size(); ++k) layers[static_cast<size_t>(stages[k])] = dealt->at(k);
  }
  return layers;
}

std::vector<int64_t> LeastLayers::ToTry() const {
  return Deal([](const LeastNumber& number) { return number.Next(); });
}

std::vector<int64_t> LeastLayers::Least() const {
  return Deal([](const LeastNumber& number) { return number.least(); });
}

void LeastLayers::Tell(const std::vector<bool>& class_fits) {
  std::map<std::vector<int>, bool> all_fit;
  for (size_t c = 0; c < class_fits.size(); ++c) {
    const auto [known, is_new] = all_fit.try_emplace(stages_of_class_[c], class_fits[c]);
    known->second = known->second && class_fits[c];
  }
  for (auto& [stages, number] : numbers_) number.Tell(all_fit.at(stages));
}

}  // namespace trainctl::planner
