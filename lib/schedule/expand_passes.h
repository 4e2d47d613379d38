// From the passes of an order to the work of each class, block by block, and the messages between classes.
// Internal to the builders.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "schedule/pipeline.h"
#include "schedule/step.h"

namespace trainctl::schedule {

// One compute instruction to be.
struct Work {
  Op op = Op::kForward;
  bool joined = false;  // runs together with the next
  int block = 0;
  int micro_batch = 0;
  int action = 0;  // of the order, for messages
};

// A value on its way to another class: the input of `block`, or its gradient.
struct Message {
  bool is_gradient = false;
  int block = 0;
  int micro_batch = 0;
};

struct Channel {
  int from = 0;
  int to = 0;
  std::vector<Message> messages;  // in the order in which they are sent
};

struct ExpandedOrder {
  std::vector<std::vector<Work>> works;  // by class
  std::vector<Channel> channels;
  // [class]: positions in `channels`, by peer in the order of first use.
  std::vector<std::vector<int>> channels_from;
  std::vector<std::vector<int>> channels_to;

  // -1: there is none.
  int FindChannel(int from, int to) const;
};

// The class that reads what `work` makes, if it is another one, and what it is sent; else -1.
int ConsumerOf(const Step& shape, int own_class, const Work& work, Message& message);

struct ExpandOptions {
  std::vector<bool> recomputed;  // by block: its forward runs again before its backward; empty: none
  bool forward_only = false;
  // Micro-batches of different passes may take turns block by block where the order joins them.
  bool join = true;
};

// `shape` has placement, stage_begin and has_head. BadDataError names rank and action.
absl::StatusOr<ExpandedOrder> ExpandPasses(const PipelineSchedule& order, const Step& shape,
                                           const ExpandOptions& options);

}  // namespace trainctl::schedule
