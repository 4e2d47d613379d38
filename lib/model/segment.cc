#include "model/segment.h"

#include <algorithm>

#include "base/status.h"

namespace trainctl::model {
namespace {

// The first operators, in list order, that read each storage root in one of the passes; -1: none does.
std::vector<int> FirstReaders(const Segment& segment, const std::vector<int>& root,
                              std::vector<int> Operator::*list) {
  std::vector<int> first(segment.values.size(), -1);
  for (size_t i = segment.operators.size(); i-- > 0;) {
    for (int value : segment.operators[i].*list) {
      first[static_cast<size_t>(root[static_cast<size_t>(value)])] = static_cast<int>(i);
    }
  }
  return first;
}

// The last operator that reads or writes each storage root in the forward; -1: none does.
std::vector<int> LastUses(const Segment& segment, const std::vector<int>& root) {
  std::vector<int> last(segment.values.size(), -1);
  for (size_t i = 0; i < segment.operators.size(); ++i) {
    for (const std::vector<int>* values : {&segment.operators[i].inputs, &segment.operators[i].outputs}) {
      for (int value : *values)
        last[static_cast<size_t>(root[static_cast<size_t>(value)])] = static_cast<int>(i);
    }
  }
  return last;
}

}  // namespace

std::vector<int> StorageRoots(const Segment& segment) {
  std::vector<int> root(segment.values.size());
  for (size_t i = 0; i < root.size(); ++i) root[i] = static_cast<int>(i);
  for (const Operator& op : segment.operators) {
    if (op.in_place_of >= 0)
      root[static_cast<size_t>(op.outputs[0])] = root[static_cast<size_t>(op.in_place_of)];
  }
  return root;
}

Lifetimes ComputeLifetimes(const Segment& segment) {
  const std::vector<int> root = StorageRoots(segment);
  const auto is_among = [&root](const std::vector<int>& border, int value) {
    return std::any_of(border.begin(), border.end(),
                       [&](int other) { return root[static_cast<size_t>(other)] == value; });
  };
  const std::vector<int> last_use = LastUses(segment, root);
  const std::vector<int> input_reader = FirstReaders(segment, root, &Operator::saved);
  const std::vector<int> weight_reader = FirstReaders(segment, root, &Operator::weight_saved);

  Lifetimes lifetimes;
  for (auto* drops : {&lifetimes.forward_drops, &lifetimes.inference_drops, &lifetimes.weight_gradient_drops,
                      &lifetimes.backward_drops, &lifetimes.input_pass_drops, &lifetimes.weight_pass_drops}) {
    drops->resize(segment.operators.size());
  }
  for (size_t v = 0; v < segment.values.size(); ++v) {
    const int value = static_cast<int>(v);
    if (root[v] != value || last_use[v] < 0) continue;
    const auto drop = [value](std::vector<std::vector<int>>& drops, int op) {
      drops[static_cast<size_t>(op)].push_back(value);
    };
    const int by_input = input_reader[v];
    const int by_weight = weight_reader[v];
    if (by_weight >= 0) {
      lifetimes.queued.push_back(value);
      drop(lifetimes.weight_pass_drops, by_weight);
    }
    if (is_among(segment.inputs, value)) continue;
    const bool is_output = is_among(segment.outputs, value);
    if (!is_output) drop(lifetimes.inference_drops, last_use[v]);
    if (by_input < 0 && by_weight < 0) {
      if (!is_output) drop(lifetimes.forward_drops, last_use[v]);
      continue;
    }
    TRAINCTL_CHECK_MSG(!is_output, "the output of a segment cannot be saved: ", segment.values[v].name);
    lifetimes.saved.push_back(value);
    // The backward runs from the last operator to the first, in each the weight gradient before the input's.
    if (by_input >= 0 && (by_weight < 0 || by_input <= by_weight)) {
      drop(lifetimes.backward_drops, by_input);
    } else {
      drop(lifetimes.weight_gradient_drops, by_weight);
    }
    if (by_weight < 0) drop(lifetimes.input_pass_drops, by_input);
  }
  for (const Operator& op : segment.operators) {
    if (op.input_gradient != InputGradient::kReuseSavedInput) continue;
    TRAINCTL_CHECK_MSG(weight_reader[static_cast<size_t>(root[static_cast<size_t>(op.inputs[0])])] < 0,
                       "a weight gradient of the second pass would read what a gradient was written over: ",
                       segment.values[static_cast<size_t>(op.inputs[0])].name);
  }
  return lifetimes;
}

}  // namespace trainctl::model
