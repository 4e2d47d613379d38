// Internal to the builders: expands the passes of a pipeline schedule into the work of each class, block by
// block, and collects the messages between classes.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "schedule/pipeline.h"
#include "schedule/step.h"

namespace trainctl::schedule {

// A compute instruction before it is built.
struct Work {
  Op op = Op::kForward;
  bool joined = false;  // runs together with the next one
  int block = 0;
  int micro_batch = 0;
  int action = 0;  // index of the pass in the rank's list, for error messages
};

// A value that is sent to another class: the input of `block`, or the gradient of that input.
struct Message {
  bool is_gradient = false;
  int block = 0;
  int micro_batch = 0;
};

// All messages from one class to another.
struct Channel {
  int from = 0;
  int to = 0;
  std::vector<Message> messages;  // in the order in which they are sent
};

struct ExpandedOrder {
  std::vector<std::vector<Work>> works;  // [class], in the order in which they run
  std::vector<Channel> channels;
  // [class]: indices in `channels` of the channels that start or end there, in order of creation.
  std::vector<std::vector<int>> channels_from;
  std::vector<std::vector<int>> channels_to;

  // Returns an index in `channels`, or -1 if there is no such channel.
  int FindChannel(int from, int to) const;
};

// If another class reads the output of `work`, returns that class and sets `message` to the message to send.
// Otherwise, returns -1.
int ConsumerOf(const Step& shape, int own_class, const Work& work, Message& message);

struct ExpandOptions {
  std::vector<bool> recomputed;  // [block], whether its forward runs again for the backward; empty for none
  bool forward_only = false;
  // Whether to interleave, block by block, two passes that the schedule joins. If false, they run one after
  // the other.
  bool join = true;
};

// Only `placement`, `stage_begin` and `has_head` of `shape` need to be set. Returns BadDataError if the
// placement is invalid, or naming the rank and action if a pass is out of range, is on the wrong rank, or
// cannot be joined.
absl::StatusOr<ExpandedOrder> ExpandPasses(const PipelineSchedule& order, const Step& shape,
                                           const ExpandOptions& options);

}  // namespace trainctl::schedule
