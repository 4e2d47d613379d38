// Boxes: regions of a logical tensor, one range of indices per dimension. What a rank holds, writes and reads
// is a list of them; a row-parallel weight is a box and no contiguous range. Pure; thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"

namespace trainctl::layout {

// Indices [begin, end).
struct Interval {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t count() const { return end - begin; }
  bool operator==(const Interval&) const = default;
};

// The elements whose index lies in dims[d] for every dimension d; of a scalar, without dimensions, its one
// element.
struct Box {
  std::vector<Interval> dims;
  int64_t Count() const;         // elements
  std::string ToString() const;  // "[0:4, 3:5]"
  bool operator==(const Box&) const = default;
};

Box WholeBox(absl::Span<const int64_t> shape);
// False also if their numbers of dimensions differ.
bool Contains(const Box& outer, const Box& inner);
// Of two boxes of one tensor. Count() is 0 where they share nothing.
Box Intersect(const Box& a, const Box& b);
// Indices of two boxes that share an element.
std::optional<std::pair<size_t, size_t>> FindOverlap(absl::Span<const Box> boxes);

// Elements [begin, begin + count) of the row-major tensor as the fewest boxes that are each contiguous in it,
// in order: at most 2 n - 1 for n dimensions, so three for a matrix.
std::vector<Box> BoxesOfRange(absl::Span<const int64_t> shape, int64_t begin, int64_t count);

// Copies a part from one box to another: the runs of `part` that are contiguous in both boxes, each as long
// as possible, in row-major order.
//
//   const Runs runs(part, file_box, memory_box);
//   for (int64_t i = 0; i < runs.size(); ++i) Copy(file + runs[i].from, memory + runs[i].to, runs[i].count);
struct Run {
  int64_t from = 0;  // its first element, in the row-major order of the first box
  int64_t to = 0;    // in that of the second
  int64_t count = 0;
};
class Runs {
 public:
  // Both contain `part`.
  Runs(const Box& part, const Box& from, const Box& to);
  int64_t size() const { return size_; }
  Run operator[](int64_t index) const;

 private:
  struct Dim {  // an outer dimension: one index in each run
    int64_t count;
    int64_t from_stride, to_stride;
  };
  std::vector<Dim> outer_;
  Run first_;
  int64_t size_ = 1;
};

}  // namespace trainctl::layout
