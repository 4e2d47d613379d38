// Boxes against brute force: sets of elements of small random tensors.

#include "layout/box.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/counter_rng.h"

namespace trainctl::layout {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class Random {
 public:
  explicit Random(uint64_t seed) : seed_(seed) {}
  int64_t Below(int64_t bound) {
    return static_cast<int64_t>(RandomBelow(seed_, 3, draw_++, static_cast<uint64_t>(bound)));
  }
  std::vector<int64_t> Shape() {
    std::vector<int64_t> shape(static_cast<size_t>(Below(5)));
    for (int64_t& extent : shape) extent = 1 + Below(5);
    return shape;
  }
  // Of `outer`; one in a few is empty.
  Box Within(const Box& outer) {
    Box box = outer;
    for (Interval& dim : box.dims) {
      if (Below(3) == 0 || dim.count() == 0) continue;
      const int64_t begin = dim.begin + Below(dim.count());
      const int64_t least = Below(20) == 0 ? 0 : 1;
      dim = {begin, begin + least + Below(dim.end - begin - least + 1)};
    }
    return box;
  }

 private:
  uint64_t seed_;
  uint64_t draw_ = 0;
};

int64_t NumElements(const std::vector<int64_t>& shape) { return WholeBox(shape).Count(); }

// The index per dimension of an element of the row-major box.
std::vector<int64_t> IndexOf(const Box& box, int64_t element) {
  std::vector<int64_t> index(box.dims.size());
  for (size_t d = box.dims.size(); d-- > 0;) {
    index[d] = box.dims[d].begin + element % box.dims[d].count();
    element /= box.dims[d].count();
  }
  return index;
}

bool Has(const Box& box, const std::vector<int64_t>& index) {
  for (size_t d = 0; d < index.size(); ++d) {
    if (index[d] < box.dims[d].begin || index[d] >= box.dims[d].end) return false;
  }
  return true;
}

// The elements of the tensor that lie in the box, in order.
std::vector<int64_t> ElementsOf(const std::vector<int64_t>& shape, const Box& box) {
  std::vector<int64_t> elements;
  const Box whole = WholeBox(shape);
  for (int64_t i = 0; i < whole.Count(); ++i) {
    if (Has(box, IndexOf(whole, i))) elements.push_back(i);
  }
  return elements;
}

bool IsContiguous(const std::vector<int64_t>& elements) {
  return elements.back() - elements.front() + 1 == static_cast<int64_t>(elements.size());
}

TEST(Box, CountIntersectionAndContainmentAreThoseOfSets) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    Random random(seed);
    const std::vector<int64_t> shape = random.Shape();
    const Box whole = WholeBox(shape), a = random.Within(whole), b = random.Within(whole);
    const std::vector<int64_t> of_a = ElementsOf(shape, a), of_b = ElementsOf(shape, b);
    EXPECT_EQ(a.Count(), static_cast<int64_t>(of_a.size()));
    std::vector<int64_t> both;
    std::set_intersection(of_a.begin(), of_a.end(), of_b.begin(), of_b.end(), std::back_inserter(both));
    EXPECT_EQ(ElementsOf(shape, Intersect(a, b)), both) << a.ToString() << " and " << b.ToString();
    EXPECT_EQ(Intersect(a, b).Count(), static_cast<int64_t>(both.size()));
    EXPECT_TRUE(Contains(whole, a));
    EXPECT_TRUE(Contains(a, Intersect(a, b)) || both.empty());
    if (Contains(a, b)) {
      EXPECT_EQ(both, of_b);
    }
    EXPECT_FALSE(Contains(a, WholeBox({1, 1, 1, 1, 1})));
  }
}

TEST(Box, ItsTextNamesEveryDimension) {
  EXPECT_EQ((Box{{{0, 4}, {3, 5}}}.ToString()), "[0:4, 3:5]");
  EXPECT_EQ(Box{}.ToString(), "[]");
  EXPECT_EQ(Box{}.Count(), 1);  // a scalar's element
}

// The fewest contiguous boxes for [begin, end), over all ways to cut it.
size_t FewestBoxes(const std::vector<int64_t>& shape, const std::set<std::pair<int64_t, int64_t>>& contiguous,
                   int64_t begin, int64_t end) {
  std::vector<size_t> fewest(static_cast<size_t>(NumElements(shape)) + 1, SIZE_MAX);
  fewest[static_cast<size_t>(begin)] = 0;
  for (int64_t at = begin; at < end; ++at) {
    for (auto it = contiguous.lower_bound({at, 0}); it != contiguous.end() && it->first == at; ++it) {
      if (it->second > end) continue;
      size_t& best = fewest[static_cast<size_t>(it->second)];
      best = std::min(best, fewest[static_cast<size_t>(at)] + 1);
    }
  }
  return fewest[static_cast<size_t>(end)];
}

TEST(Box, ARangeBecomesTheFewestContiguousBoxes) {
  for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{
           {}, {1}, {7}, {4, 5}, {1, 6}, {6, 1}, {3, 3, 2}, {2, 1, 4}, {2, 3, 2, 2}}) {
    const int64_t total = NumElements(shape);
    // Every box of the shape that is a contiguous run of it.
    std::set<std::pair<int64_t, int64_t>> contiguous;
    std::vector<Box> boxes = {Box{}};
    for (const int64_t extent : shape) {
      std::vector<Box> longer;
      for (const Box& box : boxes) {
        for (int64_t begin = 0; begin < extent; ++begin) {
          for (int64_t end = begin + 1; end <= extent; ++end) {
            longer.push_back(box);
            longer.back().dims.push_back({begin, end});
          }
        }
      }
      boxes = std::move(longer);
    }
    for (const Box& box : boxes) {
      const std::vector<int64_t> elements = ElementsOf(shape, box);
      if (IsContiguous(elements)) contiguous.insert({elements.front(), elements.back() + 1});
    }
    for (int64_t begin = 0; begin <= total; ++begin) {
      for (int64_t end = begin; end <= total; ++end) {
        const std::vector<Box> split = BoxesOfRange(shape, begin, end - begin);
        EXPECT_EQ(split.size(), FewestBoxes(shape, contiguous, begin, end)) << begin << " to " << end;
        EXPECT_LE(split.size(), std::max<size_t>(1, 2 * shape.size() - 1));
        int64_t at = begin;
        for (const Box& box : split) {
          for (const int64_t element : ElementsOf(shape, box)) EXPECT_EQ(element, at++);
        }
        EXPECT_EQ(at, end);
      }
    }
  }
}

TEST(Box, ARangeOfAMatrixIsARowsEndWholeRowsAndARowsBeginning) {
  EXPECT_THAT(BoxesOfRange({5, 4}, 3, 11),
              ElementsAre(Box{{{0, 1}, {3, 4}}}, Box{{{1, 3}, {0, 4}}}, Box{{{3, 4}, {0, 2}}}));
  EXPECT_THAT(BoxesOfRange({5, 4}, 4, 0), IsEmpty());
}

TEST(Box, RunsCopyEachElementToItsPlace) {
  int64_t num_split = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    Random random(seed);
    const Box whole = WholeBox(random.Shape());
    const Box from = random.Within(whole), to = random.Within(whole);
    if (Intersect(from, to).Count() == 0) continue;
    const Box part = random.Within(Intersect(from, to));
    const Runs runs(part, from, to);
    int64_t next = 0, last_from = -1, last_to = -1;
    for (int64_t i = 0; i < runs.size(); ++i) {
      const auto run = runs[i];
      // As long as can be: two that follow one another in both would be one.
      EXPECT_FALSE(run.from == last_from && run.to == last_to);
      for (int64_t k = 0; k < run.count; ++k) {
        const std::vector<int64_t> index = IndexOf(part, next++);
        EXPECT_EQ(IndexOf(from, run.from + k), index);
        EXPECT_EQ(IndexOf(to, run.to + k), index);
      }
      last_from = run.from + run.count;
      last_to = run.to + run.count;
    }
    EXPECT_EQ(next, part.Count());
    num_split += runs.size() > 1 ? 1 : 0;
  }
  EXPECT_GT(num_split, 100);
}

TEST(Box, AnOverlapIsFoundWhereThereIsOne) {
  int num_overlaps = 0, num_apart = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    Random random(seed);
    std::vector<int64_t> shape = random.Shape();
    // Cut again and again, so that the boxes lie apart; some of them grow by an index.
    std::vector<Box> boxes = {WholeBox(shape)};
    for (int64_t cuts = random.Below(8); cuts > 0 && !shape.empty(); --cuts) {
      Box& box = boxes[static_cast<size_t>(random.Below(static_cast<int64_t>(boxes.size())))];
      Box rest = box;
      const size_t d = static_cast<size_t>(random.Below(static_cast<int64_t>(shape.size())));
      box.dims[d].end = rest.dims[d].begin = box.dims[d].begin + random.Below(box.dims[d].count() + 1);
      boxes.push_back(rest);
    }
    if (random.Below(2) == 0 && !shape.empty()) {
      const size_t d = static_cast<size_t>(random.Below(static_cast<int64_t>(shape.size())));
      Interval& dim = boxes[static_cast<size_t>(random.Below(static_cast<int64_t>(boxes.size())))].dims[d];
      dim.end = std::min(shape[d], dim.end + 1);
    }
    std::multiset<int64_t> elements;
    for (const Box& box : boxes) {
      for (const int64_t element : ElementsOf(shape, box)) elements.insert(element);
    }
    const bool overlap = std::set<int64_t>(elements.begin(), elements.end()).size() < elements.size();
    const auto found = FindOverlap(boxes);
    ASSERT_EQ(found.has_value(), overlap) << seed;
    if (found.has_value()) {
      EXPECT_LT(found->first, found->second);
      EXPECT_GT(Intersect(boxes[found->first], boxes[found->second]).Count(), 0);
    }
    ++(overlap ? num_overlaps : num_apart);
  }
  EXPECT_GT(num_overlaps, 200);
  EXPECT_GT(num_apart, 1000);
}

// No straight cut separates these five without crossing one of them.
TEST(Box, AnOverlapIsFoundAmongBoxesThatInterlock) {
  std::vector<Box> boxes = {Box{{{0, 1}, {0, 2}}}, Box{{{0, 2}, {2, 3}}}, Box{{{2, 3}, {1, 3}}},
                            Box{{{1, 3}, {0, 1}}}, Box{{{1, 2}, {1, 2}}}};
  EXPECT_FALSE(FindOverlap(boxes).has_value());
  boxes[4].dims[1].end = 3;
  EXPECT_EQ(FindOverlap(boxes), (std::pair<size_t, size_t>{1, 4}));
}

TEST(Box, ThousandsOfRanksAreCompared) {
  std::vector<Box> boxes;
  for (int64_t row = 0; row < 3000; ++row) {
    for (int64_t column = 0; column < 8; ++column)
      boxes.push_back({{{row, row + 1}, {column * 4, column * 4 + 4}}});
  }
  EXPECT_FALSE(FindOverlap(boxes).has_value());
  boxes[20'000].dims[0].end += 1;
  EXPECT_EQ(FindOverlap(boxes), (std::pair<size_t, size_t>{20'000, 20'008}));
}

}  // namespace
}  // namespace trainctl::layout
