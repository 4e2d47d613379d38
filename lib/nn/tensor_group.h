// The ranks of tensor parallelism as operators see them: exchanges between the rows of a segment's values.
// Collective over the group, in the order of the table. A failure is thrown with its status.
#pragma once

#include <ATen/core/Tensor.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "comm/group.h"

namespace trainctl::nn {

class TensorGroup {
 public:
  explicit TensorGroup(comm::Group& group) : group_(group) {}

  int size() const { return group_.size(); }
  int index() const { return group_.index(); }

  // What runs now, "forward block 3 micro-batch 1": names of collectives begin with it.
  void SetPlace(std::string place) { place_ = std::move(place); }

  // `whole` [size() * rows, cols]: of which `part` [rows, cols] is this rank's.
  void GatherRows(absl::string_view what, const at::Tensor& part, at::Tensor& whole);
  // `sums` [rows, cols]: of this rank's rows of all ranks' `parts` [size() * rows, cols], which stay.
  void ScatterSums(absl::string_view what, const at::Tensor& parts, at::Tensor& sums);
  // In place, of all rows.
  void Sum(absl::string_view what, at::Tensor& parts);

 private:
  std::string NameOf(absl::string_view what) const;

  comm::Group& group_;
  std::string place_;
};

}  // namespace trainctl::nn
