#include "layout/box.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace trainctl::layout {
namespace {

using Indices = std::vector<size_t>;

// Cuts a group where no box of it crosses an index of `dim`. One group where there is no such index.
std::vector<Indices> SplitAlong(absl::Span<const Box> boxes, Indices group, size_t dim) {
  const auto of = [&](size_t i) { return boxes[i].dims[dim]; };
  std::sort(group.begin(), group.end(), [&](size_t a, size_t b) {
    return of(a).begin != of(b).begin ? of(a).begin < of(b).begin : a < b;
  });
  std::vector<Indices> parts;
  int64_t end = 0;
  for (const size_t i : group) {
    if (parts.empty() || of(i).begin >= end) parts.emplace_back();
    parts.back().push_back(i);
    end = std::max(end, of(i).end);
  }
  return parts;
}

// Of boxes that no straight cut separates, each against each.
std::optional<std::pair<size_t, size_t>> FindOverlapOfPairs(absl::Span<const Box> boxes,
                                                            const Indices& group) {
  for (size_t k = 0; k < group.size(); ++k) {
    for (size_t l = k + 1; l < group.size(); ++l) {
      if (Intersect(boxes[group[k]], boxes[group[l]]).Count() > 0) return std::minmax(group[k], group[l]);
    }
  }
  return std::nullopt;
}

}  // namespace

int64_t Box::Count() const {
  int64_t count = 1;
  for (const Interval& dim : dims) {
    if (dim.count() == 0) return 0;  // first, as the others may be too many to multiply
  }
  for (const Interval& dim : dims) count *= dim.count();
  return count;
}

std::string Box::ToString() const {
  std::string text = "[";
  for (const Interval& dim : dims)
    absl::StrAppend(&text, text.size() > 1 ? ", " : "", dim.begin, ":", dim.end);
  return text + "]";
}

Box WholeBox(absl::Span<const int64_t> shape) {
  Box box;
  for (const int64_t extent : shape) box.dims.push_back({0, extent});
  return box;
}

bool Contains(const Box& outer, const Box& inner) {
  if (outer.dims.size() != inner.dims.size()) return false;
  for (size_t d = 0; d < outer.dims.size(); ++d) {
    const Interval &o = outer.dims[d], &i = inner.dims[d];
    if (i.begin < o.begin || i.end < i.begin || i.end > o.end) return false;
  }
  return true;
}

Box Intersect(const Box& a, const Box& b) {
  TRAINCTL_CHECK(a.dims.size() == b.dims.size());
  Box both;
  for (size_t d = 0; d < a.dims.size(); ++d) {
    const int64_t begin = std::max(a.dims[d].begin, b.dims[d].begin);
    both.dims.push_back({begin, std::max(begin, std::min(a.dims[d].end, b.dims[d].end))});
  }
  return both;
}

std::optional<std::pair<size_t, size_t>> FindOverlap(absl::Span<const Box> boxes) {
  Indices all;
  for (size_t i = 0; i < boxes.size(); ++i) {
    if (boxes[i].Count() > 0) all.push_back(i);
  }
  if (all.size() < 2) return std::nullopt;
  const size_t num_dims = boxes[all[0]].dims.size();
  // Comparing each with each takes too long for thousands of ranks. What ranks write can nearly always be
  // taken apart by straight cuts, again and again.
  std::vector<Indices> groups = {std::move(all)};
  while (!groups.empty()) {
    const Indices group = std::move(groups.back());
    groups.pop_back();
    if (group.size() < 2) continue;
    bool is_split = false;
    for (size_t dim = 0; dim < num_dims && !is_split; ++dim) {
      std::vector<Indices> parts = SplitAlong(boxes, group, dim);
      is_split = parts.size() > 1;
      if (is_split) std::move(parts.begin(), parts.end(), std::back_inserter(groups));
    }
    if (is_split) continue;
    if (const auto found = FindOverlapOfPairs(boxes, group)) return found;
  }
  return std::nullopt;
}

std::vector<Box> BoxesOfRange(absl::Span<const int64_t> shape, int64_t begin, int64_t count) {
  std::vector<Box> boxes;
  if (count == 0) return boxes;
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  const int64_t end = begin + count;
  for (int64_t at = begin; at < end;) {
    // The outermost dimension of which whole indices begin here and fit.
    size_t outer = 0;
    while (outer + 1 < shape.size() && (at % strides[outer] != 0 || end - at < strides[outer])) ++outer;
    Box box = WholeBox(shape);
    int64_t taken = 1;
    for (size_t d = 0; d <= outer && d < shape.size(); ++d) {
      const int64_t index = at / strides[d] % shape[d];
      const int64_t most = d < outer ? 1 : std::min(shape[d] - index, (end - at) / strides[d]);
      box.dims[d] = {index, index + most};
      taken = most * strides[d];
    }
    boxes.push_back(std::move(box));
    at += taken;
  }
  return boxes;
}

Runs::Runs(const Box& part, const Box& from, const Box& to) {
  TRAINCTL_CHECK_MSG(Contains(from, part) && Contains(to, part), part.ToString(), " does not lie in both ",
                     from.ToString(), " and ", to.ToString());
  first_.count = 1;
  int64_t from_stride = 1, to_stride = 1;
  for (size_t d = part.dims.size(); d-- > 0;) {
    const Interval& dim = part.dims[d];
    first_.from += (dim.begin - from.dims[d].begin) * from_stride;
    first_.to += (dim.begin - to.dims[d].begin) * to_stride;
    // A run goes on into this dimension as long as it has all of the inner ones, in both.
    if (outer_.empty() && first_.count == from_stride && first_.count == to_stride) {
      first_.count *= dim.count();
    } else {
      outer_.push_back({dim.count(), from_stride, to_stride});
      size_ *= dim.count();
    }
    from_stride *= from.dims[d].count();
    to_stride *= to.dims[d].count();
  }
  if (part.Count() == 0) size_ = 0;
}

Run Runs::operator[](int64_t index) const {
  Run run = first_;
  for (const Dim& dim : outer_) {  // the innermost first
    run.from += index % dim.count * dim.from_stride;
    run.to += index % dim.count * dim.to_stride;
    index /= dim.count;
  }
  return run;
}

}  // namespace trainctl::layout
