// Internal to the planner: finds the smallest number of recomputed layers in each stage with which a layout
// fits, by trying different numbers. The caller simulates each trial. Not thread-safe.
//
//   LeastLayers layers(stages_of_class, stage_layers, least, /*halves=*/true);
//   while (!layers.IsKnown()) layers.Tell(ClassesThatFit(layers.ToTry()));
//   if (layers.AllFit()) Use(layers.ToTry());
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

namespace trainctl::planner {

// Searches for the smallest number in (low, most] that fits. Assumes that all larger numbers fit too. Tries
// numbers near `low` first, because `low` comes from a lower bound and is usually close.
class LeastNumber {
 public:
  // If `halves` is true, the steps double until a number fits, and the rest of the range is then bisected.
  // Otherwise the search counts up by one.
  LeastNumber(int64_t low, int64_t most, bool halves)
      : low_(low), high_(most + 1), most_(most), halves_(halves) {}

  // Whether the search has finished.
  bool IsKnown() const { return high_ - low_ == 1; }
  // Whether some number is known to fit.
  bool Fits() const { return high_ <= most_; }
  // Returns a lower bound of the result: no smaller number fits.
  int64_t least() const { return std::min(low_ + 1, most_); }
  // Returns the next number to try. After the search, returns the result, or `most` if no number fits.
  int64_t Next() const;
  // Records whether Next() fits. Does nothing after the search.
  void Tell(bool fits);

 private:
  int64_t low_, high_;  // `low_` does not fit, and `high_` does (or is most_ + 1)
  int64_t most_;
  bool halves_;
  int64_t step_ = 1;
};

// Searches for the number of recomputed layers in each stage. Runs one search for each distinct set of stages
// of a class, and assigns the number to the first stages first (simulate::DealFirst).
class LeastLayers {
 public:
  // `stages_of_class` has the stages of each class, and `stage_layers` the number of layers in each stage.
  // `least` is a lower bound of the result for each stage. `halves` is as in LeastNumber.
  LeastLayers(std::vector<std::vector<int>> stages_of_class, std::vector<int64_t> stage_layers,
              const std::vector<int64_t>& least, bool halves);

  // Whether all searches have finished.
  bool IsKnown() const;
  // Whether each class has a number that is known to fit.
  bool AllFit() const;
  // Returns the numbers of layers to try next, by stage. After the search, returns the result.
  std::vector<int64_t> ToTry() const;
  // Returns a lower bound of the result, by stage.
  std::vector<int64_t> Least() const;
  // Records which classes fit with ToTry().
  void Tell(const std::vector<bool>& class_fits);

 private:
  template <typename NumberOf>
  std::vector<int64_t> Deal(const NumberOf& number_of) const;

  std::vector<std::vector<int>> stages_of_class_;
  std::vector<int64_t> stage_layers_;
  std::map<std::vector<int>, LeastNumber> numbers_;  // by stages; classes with the same stages share a number
};

}  // namespace trainctl::planner
