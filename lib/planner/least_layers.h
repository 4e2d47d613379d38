// The fewest recomputed layers of each stage with which a layout fits, found by trying numbers of them.
// Internal to the planner. Pure.
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

// The least number above `low` and up to `most` that fits; if none does, `low` becomes `most`. Tries numbers
// near `low` first, since lower bounds seldom leave much.
class LeastNumber {
 public:
  LeastNumber(int64_t low, int64_t most, bool halves)
      : low_(low), high_(most + 1), most_(most), halves_(halves) {}

  bool IsKnown() const { return high_ - low_ == 1; }
  bool Fits() const { return high_ <= most_; }
  // No lower number fits.
  int64_t least() const { return std::min(low_ + 1, most_); }
  // The next number to try, or the final one once it is known.
  int64_t Next() const;
  void Tell(bool fits);

 private:
  int64_t low_, high_;  // does not fit; fits
  int64_t most_;
  bool halves_;
  int64_t step_ = 1;
};

class LeastLayers {
 public:
  // `least` is a lower bound for each stage. If `halves`, the search bisects; else it counts up by one.
  LeastLayers(std::vector<std::vector<int>> stages_of_class, std::vector<int64_t> stage_layers,
              const std::vector<int64_t>& least, bool halves);

  bool IsKnown() const;
  // Whether every class fits with what is known.
  bool AllFit() const;
  // By stage.
  std::vector<int64_t> ToTry() const;
  std::vector<int64_t> Least() const;
  // Whether each class fits with ToTry().
  void Tell(const std::vector<bool>& class_fits);

 private:
  template <typename NumberOf>
  std::vector<int64_t> Deal(const NumberOf& number_of) const;

  std::vector<std::vector<int>> stages_of_class_;
  std::vector<int64_t> stage_layers_;
  std::map<std::vector<int>, LeastNumber> numbers_;  // classes with the same stages have one number
};

}  // namespace trainctl::planner
