// Boxes: rectangular regions of a logical tensor, given as one range of indices per dimension. The part of a
// tensor that a rank holds, writes or reads is a list of boxes. A flat range is not enough: the part of a
// row-parallel weight is a box, but is not contiguous. Pure functions; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"

namespace trainctl::layout {

// The indices [begin, end).
struct Interval {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t count() const { return end - begin; }
  bool operator==(const Interval&) const = default;
};

// The elements whose index lies in dims[d] for every dimension d. The box of a scalar has no dimensions and
// contains its single element.
struct Box {
  std::vector<Interval> dims;
  int64_t Count() const;         // number of elements
  std::string ToString() const;  // "[0:4, 3:5]"
  bool operator==(const Box&) const = default;
};

// Returns the box that contains every element of a tensor of this shape.
Box WholeBox(absl::Span<const int64_t> shape);
// Whether `inner` lies in `outer`. False if their numbers of dimensions differ.
bool Contains(const Box& outer, const Box& inner);
// Returns the elements that two boxes of the same tensor share. Count() is 0 if they share none.
Box Intersect(const Box& a, const Box& b);
// Returns the indices of two boxes that share an element, or nullopt if no two do. All boxes must belong to
// the same tensor. Takes close to linear time for the boxes of a regular grid, and quadratic time at worst.
std::optional<std::pair<size_t, size_t>> FindOverlap(absl::Span<const Box> boxes);

// Returns the elements [begin, begin + count) of a row-major tensor as boxes, in order. Each box is
// contiguous in the tensor, and there are as few as possible: at most 2 n - 1 for n dimensions, so 3 for a
// matrix.
std::vector<Box> BoxesOfRange(absl::Span<const int64_t> shape, int64_t begin, int64_t count);

// A run of elements that is contiguous in two boxes.
struct Run {
  int64_t from = 0;  // the first element's position in the row-major order of the first box
  int64_t to = 0;    // its position in the second box
  int64_t count = 0;
};
// Lists the runs that copy `part` from one box to another. Each run is as long as possible, and the runs are
// in the row-major order of `part`.
//
//   const Runs runs(part, file_box, memory_box);
//   for (int64_t i = 0; i < runs.size(); ++i) Copy(file + runs[i].from, memory + runs[i].to, runs[i].count);
class Runs {
 public:
  // Both boxes must contain `part`.
  Runs(const Box& part, const Box& from, const Box& to);
  int64_t size() const { return size_; }
  Run operator[](int64_t index) const;

 private:
  struct Dim {  // an outer dimension, which has one index in each run
    int64_t count;
    int64_t from_stride, to_stride;
  };
  std::vector<Dim> outer_;
  Run first_;
  int64_t size_ = 1;
};

}  // namespace trainctl::layout
