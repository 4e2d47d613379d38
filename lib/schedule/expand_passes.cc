#include "schedule/expand_passes.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace trainctl::schedule {
namespace {

class Expander {
 public:
  Expander(const PipelineSchedule& order, const Step& shape, const ExpandOptions& options)
      : order_(order), shape_(shape), place_(order.placement), options_(options) {}

  absl::StatusOr<ExpandedOrder> Run() {
    TRAINCTL_RETURN_IF_ERROR(CheckPlacement());
    const size_t num_classes = order_.actions.size();
    expanded_.works.resize(num_classes);
    expanded_.channels_from.resize(num_classes);
    expanded_.channels_to.resize(num_classes);
    for (rank_ = 0; rank_ < static_cast<int>(num_classes); ++rank_) {
      TRAINCTL_RETURN_IF_ERROR(ExpandRank(order_.actions[static_cast<size_t>(rank_)]));
    }
    return std::move(expanded_);
  }

 private:
  template <typename... Args>
  absl::Status Fail(size_t index, const Args&... reason) const {
    const PipelineAction& action = order_.actions[static_cast<size_t>(rank_)][index];
    return BadDataError(absl::StrCat("pipeline schedule ", order_.name, ": rank ", rank_, ", action ", index,
                                     " (", DescribePass(action.op, action.stage, action.micro_batch), ") ",
                                     reason...));
  }

  absl::Status CheckPlacement() const {
    const size_t stage_ranks =
        static_cast<size_t>(place_.num_copies) * static_cast<size_t>(place_.num_stages);
    bool in_range = place_.num_ranks >= 1 && place_.num_stages >= 1 && place_.num_micro_batches >= 1 &&
                    place_.num_copies >= 1 && place_.stage_ranks.size() == stage_ranks &&
                    order_.actions.size() == static_cast<size_t>(place_.num_ranks);
    for (int rank : place_.stage_ranks) in_range = in_range && rank >= 0 && rank < place_.num_ranks;
    if (!in_range)
      return BadDataError(absl::StrCat("pipeline schedule ", order_.name, " has no valid placement"));
    return absl::OkStatus();
  }

  absl::Status CheckAction(const std::vector<PipelineAction>& actions, size_t i) const {
    const PipelineAction& action = actions[i];
    if (action.op > PipelineOp::kBackwardWeight) return Fail(i, "is not a pass");
    if (action.stage < 0 || action.stage >= place_.num_stages || action.micro_batch < 0 ||
        action.micro_batch >= place_.num_micro_batches) {
      return Fail(i, "is outside of ", place_.num_stages, " stages and ", place_.num_micro_batches,
                  " micro-batches");
    }
    const int home = place_.RankOf(action.stage, action.micro_batch);
    if (home != rank_) return Fail(i, "belongs on rank ", home);
    if (action.joined && !JoinsNext(actions, i))
      return Fail(i, "overlaps with the next action, which is no backward of another micro-batch");
    return absl::OkStatus();
  }

  static bool JoinsNext(const std::vector<PipelineAction>& actions, size_t i) {
    if (actions[i].op != PipelineOp::kForward || i + 1 == actions.size()) return false;
    const PipelineAction& next = actions[i + 1];
    const bool backward = next.op == PipelineOp::kBackward || next.op == PipelineOp::kBackwardInput;
    return backward && (next.stage != actions[i].stage || next.micro_batch != actions[i].micro_batch);
  }

  absl::Status ExpandRank(const std::vector<PipelineAction>& actions) {
    works_ = &expanded_.works[static_cast<size_t>(rank_)];
    works_->reserve(actions.size() * static_cast<size_t>(shape_.num_blocks() / place_.num_stages + 1));
    for (size_t i = 0; i < actions.size(); ++i) {
      TRAINCTL_RETURN_IF_ERROR(CheckAction(actions, i));
      const size_t begin = works_->size();
      ExpandPass(actions[i], static_cast<int>(i));
      if (!actions[i].joined || !options_.join) continue;
      const size_t middle = works_->size();
      TRAINCTL_RETURN_IF_ERROR(CheckAction(actions, ++i));
      ExpandPass(actions[i], static_cast<int>(i));
      Interleave(begin, middle);
    }
    CollectMessages();
    return absl::OkStatus();
  }

  // Forwards [begin, middle) and backwards [middle, end) take turns, each forward joined with the backward
  // that follows it.
  void Interleave(size_t begin, size_t middle) {
    const std::vector<Work> pass(works_->begin() + static_cast<std::ptrdiff_t>(begin), works_->end());
    works_->resize(begin);
    const size_t num_forwards = middle - begin;
    const size_t num_backwards = pass.size() - num_forwards;
    for (size_t k = 0; k < std::max(num_forwards, num_backwards); ++k) {
      if (k < num_forwards) {
        works_->push_back(pass[k]);
        works_->back().joined = k < num_backwards && (pass[num_forwards + k].op == Op::kBackward ||
                                                      pass[num_forwards + k].op == Op::kBackwardInput);
      }
      if (k < num_backwards) works_->push_back(pass[num_forwards + k]);
    }
  }

  void Add(Op op, int block, int micro_batch, int action) {
    works_->push_back({op, false, block, micro_batch, action});
  }

  void ExpandPass(const PipelineAction& action, int index) {
    const size_t stage = static_cast<size_t>(action.stage);
    const int begin = shape_.stage_begin[stage];
    const int end = shape_.stage_begin[stage + 1];
    const int m = action.micro_batch;
    switch (action.op) {
      case PipelineOp::kForward:
        for (int block = begin; block < end; ++block) {
          // Loss and gradient are one instruction, which belongs to the backward.
          if (block < shape_.head()) Add(Op::kForward, block, m, index);
          if (block == shape_.head() && options_.forward_only) Add(Op::kLoss, block, m, index);
        }
        return;
      case PipelineOp::kBackward:
      case PipelineOp::kBackwardInput:
        for (int block = end; block-- > begin;) AddBackward(action.op, block, m, index);
        return;
      case PipelineOp::kBackwardWeight:
        for (int block = end; block-- > begin;) {
          if (Splits(block)) Add(Op::kBackwardWeight, block, m, index);
        }
        return;
    }
  }

  // The head's gradients are formed together with the loss; those of the embedding need no later pass.
  bool Splits(int block) const { return !shape_.has_head || (block != 0 && block != shape_.head()); }

  void AddBackward(PipelineOp pass, int block, int m, int index) {
    if (block == shape_.head()) return Add(Op::kLossAndGradient, block, m, index);
    if (!options_.recomputed.empty() && options_.recomputed[static_cast<size_t>(block)])
      Add(Op::kRecompute, block, m, index);
    const bool split = pass == PipelineOp::kBackwardInput && Splits(block);
    Add(split ? Op::kBackwardInput : Op::kBackward, block, m, index);
  }

  void CollectMessages() {
    for (const Work& work : *works_) {
      Message message;
      const int to = ConsumerOf(shape_, rank_, work, message);
      if (to >= 0) Send(to, message);
    }
  }

  void Send(int to, const Message& message) {
    int id = expanded_.FindChannel(rank_, to);
    if (id < 0) {
      id = static_cast<int>(expanded_.channels.size());
      expanded_.channels.push_back({rank_, to, {}});
      expanded_.channels_from[static_cast<size_t>(rank_)].push_back(id);
      expanded_.channels_to[static_cast<size_t>(to)].push_back(id);
    }
    expanded_.channels[static_cast<size_t>(id)].messages.push_back(message);
  }

  const PipelineSchedule& order_;
  const Step& shape_;
  const PipelinePlacement& place_;
  const ExpandOptions& options_;
  ExpandedOrder expanded_;
  int rank_ = 0;
  std::vector<Work>* works_ = nullptr;
};

}  // namespace

int ExpandedOrder::FindChannel(int from, int to) const {
  for (int id : channels_from[static_cast<size_t>(from)]) {
    if (channels[static_cast<size_t>(id)].to == to) return id;
  }
  return -1;
}

int ConsumerOf(const Step& shape, int own_class, const Work& work, Message& message) {
  int neighbour = -1;
  if (work.op == Op::kForward) {
    neighbour = work.block + 1;
    if (neighbour == shape.num_blocks()) return -1;
    message = {false, neighbour, work.micro_batch};
  } else if (work.op == Op::kBackward || work.op == Op::kBackwardInput || work.op == Op::kLossAndGradient) {
    neighbour = work.block - 1;
    if (neighbour < 0) return -1;
    message = {true, work.block, work.micro_batch};
  } else {
    return -1;
  }
  const int to = shape.ClassOf(neighbour, work.micro_batch);
  return to == own_class ? -1 : to;
}

absl::StatusOr<ExpandedOrder> ExpandPasses(const PipelineSchedule& order, const Step& shape,
                                           const ExpandOptions& options) {
  return Expander(order, shape, options).Run();
}

}  // namespace trainctl::schedule
