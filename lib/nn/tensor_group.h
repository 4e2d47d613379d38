// The exchanges that operators need between the ranks of a tensor-parallel group. They are collective over
// the group, and all ranks issue them in the order of the segment's table. Tensors must be contiguous. A
// failure is thrown as OperatorFailed with its status.
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

  // Sets the prefix of collectives' names: the running instruction, for example "forward block 3 micro-batch
  // 1".
  void SetPlace(std::string place) { place_ = std::move(place); }

  // All-gather: fills `whole` [size() * rows, cols] with every rank's `part` [rows, cols], in rank order.
  void GatherRows(absl::string_view what, const at::Tensor& part, at::Tensor& whole);
  // Reduce-scatter: writes this rank's rows of the sum of all ranks' `parts` [size() * rows, cols] to `sums`
  // [rows, cols]. `parts` is unchanged.
  void ScatterSums(absl::string_view what, const at::Tensor& parts, at::Tensor& sums);
  // All-reduce: replaces `parts` by the sum over all ranks.
  void Sum(absl::string_view what, at::Tensor& parts);

 private:
  std::string NameOf(absl::string_view what) const;

  comm::Group& group_;
  std::string place_;
};

}  // namespace trainctl::nn
