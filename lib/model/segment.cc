#include "model/segment.h"

#include <algorithm>
#include <utility>

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

// Whether each value is one that the backward forms again.
std::vector<bool> FormedAgain(const Segment& segment) {
  std::vector<bool> formed(segment.values.size());
  for (const Operator& op : segment.operators) {
    for (int output : op.outputs) formed[static_cast<size_t>(output)] = op.formed_again;
  }
  return formed;
}

// Which operators each operator's backward has to run again first.
class FormerAgain {
 public:
  FormerAgain(const Segment& segment, Lifetimes& lifetimes)
      : segment_(segment), lifetimes_(lifetimes), maker_(segment.values.size(), -1) {
    for (size_t i = 0; i < segment.operators.size(); ++i) {
      if (!segment.operators[i].formed_again) continue;
      for (int output : segment.operators[i].outputs)
        maker_[static_cast<size_t>(output)] = static_cast<int>(i);
    }
  }

  void Run() {
    for (size_t i = segment_.operators.size(); i-- > 0;) {
      const Operator& op = segment_.operators[i];
      for (const std::vector<int>* read : {&op.weight_saved, &op.saved}) {
        for (int value : *read) Need(value, lifetimes_.formed_again[i]);
      }
    }
  }

 private:
  void Need(int value, std::vector<int>& formed) {
    const int maker = std::exchange(maker_[static_cast<size_t>(value)], -1);
    if (maker < 0) return;  // kept, or formed for a later operator
    const Operator& op = segment_.operators[static_cast<size_t>(maker)];
    for (int output : op.outputs) maker_[static_cast<size_t>(output)] = -1;
    for (int input : op.inputs) Need(input, formed);
    formed.push_back(maker);
  }

  const Segment& segment_;
  Lifetimes& lifetimes_;
  std::vector<int> maker_;  // by value, until it is formed
};

}  // namespace

size_t NumOperatorsThatSave(const Segment& segment) {
  const std::vector<int> root = StorageRoots(segment);
  const std::vector<bool> is_formed = FormedAgain(segment);
  std::vector<bool> is_saved(segment.values.size());
  for (const Operator& op : segment.operators) {
    for (const std::vector<int>* values : {&op.saved, &op.weight_saved}) {
      for (const int value : *values) {
        const auto v = static_cast<size_t>(root[static_cast<size_t>(value)]);
        is_saved[v] = !is_formed[v];
      }
    }
  }
  size_t count = segment.operators.size();
  const auto saves = [&](const Operator& op) {
    return std::any_of(op.outputs.begin(), op.outputs.end(), [&](int output) {
      return is_saved[static_cast<size_t>(root[static_cast<size_t>(output)])];
    });
  };
  while (count > 0 && !saves(segment.operators[count - 1])) --count;
  // Two operators in one pass over memory are not taken apart.
  if (count > 0 && segment.operators[count - 1].with_next.Has(Pass::kForward)) ++count;
  return count;
}

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
  for (auto* lists : {&lifetimes.forward_drops, &lifetimes.inference_drops, &lifetimes.formed_again,
                      &lifetimes.formed_again_drops, &lifetimes.weight_gradient_drops,
                      &lifetimes.backward_drops, &lifetimes.input_pass_drops, &lifetimes.weight_pass_drops}) {
    lists->resize(segment.operators.size());
  }
  FormerAgain(segment, lifetimes).Run();
  const std::vector<bool> is_formed = FormedAgain(segment);
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
    if (is_formed[v]) {
      drop(lifetimes.forward_drops, last_use[v]);
    } else {
      lifetimes.saved.push_back(value);
    }
    // The backward runs from the last operator to the first, in each the weight gradient before the input's.
    if (by_input >= 0 && (by_weight < 0 || by_input <= by_weight)) {
      drop(lifetimes.backward_drops, by_input);
    } else {
      drop(lifetimes.weight_gradient_drops, by_weight);
    }
    if (by_weight < 0) drop(lifetimes.input_pass_drops, by_input);
  }
  for (size_t i = 0; i < segment.operators.size(); ++i) {
    for (int formed : lifetimes.formed_again[i]) {
      for (int output : segment.operators[static_cast<size_t>(formed)].outputs) {
        const auto v = static_cast<size_t>(output);
        if (root[v] == output && input_reader[v] < 0 && weight_reader[v] < 0)
          lifetimes.formed_again_drops[i].push_back(output);
      }
    }
  }
  for (const Operator& op : segment.operators) {
    for (const int input : op.inputs) {
      const int value = root[static_cast<size_t>(input)];
      const bool is_available =
          !op.formed_again || is_among(segment.inputs, value) || is_formed[static_cast<size_t>(input)] ||
          std::find(lifetimes.saved.begin(), lifetimes.saved.end(), value) != lifetimes.saved.end();
      TRAINCTL_CHECK_MSG(is_available, "an operator is recomputed from a value that is not saved: ",
                         segment.values[static_cast<size_t>(input)].name);
    }
    if (op.input_gradient != InputGradient::kReuseSavedInput) continue;
    TRAINCTL_CHECK_MSG(weight_reader[static_cast<size_t>(root[static_cast<size_t>(op.inputs[0])])] < 0,
                       "a weight gradient of the second pass would read what a gradient was written over: ",
                       segment.values[static_cast<size_t>(op.inputs[0])].name);
  }
  return lifetimes;
}

}  // namespace trainctl::model
