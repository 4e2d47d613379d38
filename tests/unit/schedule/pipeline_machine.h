// An oracle that is independent of the pipeline checker: it executes lowered lists on numbers that
// stand for tensors. Storage and messages carry values and no labels; a value of a micro-batch goes
// wrong in every later result if it is mixed up anywhere. Freed storage holds poison.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "schedule/pipeline_lowered.h"

namespace trainctl::schedule {

struct PipelineOutcome {
  bool failed = false;  // deadlock, poison read, a place that does not exist, something left over
  std::vector<uint64_t> weight_gradients;  // by stage: sum over micro-batches
  bool operator==(const PipelineOutcome&) const = default;
};

class PipelineMachine {
 public:
  PipelineMachine(const LoweredPipeline& lowered, uint32_t seed) : lowered_(lowered), random_(seed) {}

  PipelineOutcome Run() {
    const size_t p = lowered_.instructions.size();
    outcome_.weight_gradients.assign(static_cast<size_t>(lowered_.placement.num_stages), 0);
    slots_.resize(p);
    buffers_.resize(p);
    for (size_t r = 0; r < p; ++r) {
      slots_[r].resize(static_cast<size_t>(lowered_.num_slots[r]));
      buffers_[r].assign(static_cast<size_t>(lowered_.num_buffers[r]), kPoison);
    }
    std::vector<size_t> next(p, 0);
    while (!outcome_.failed) {
      std::vector<size_t> able;
      bool finished = true;
      for (size_t r = 0; r < p; ++r) {
        if (next[r] == lowered_.instructions[r].size()) continue;
        finished = false;
        const PipelineInstruction& i = lowered_.instructions[r][next[r]];
        const bool receives = i.op == PipelineOp::kRecvActivation || i.op == PipelineOp::kRecvGradient;
        if (!receives || !channels_[{i.peer, static_cast<int>(r)}].empty()) able.push_back(r);
      }
      if (finished) break;
      if (able.empty()) {
        outcome_.failed = true;
        break;
      }
      const size_t r = able[random_() % able.size()];
      next[r] += Step(r, next[r]);
    }
    for (const auto& [ends, messages] : channels_) outcome_.failed = outcome_.failed || !messages.empty();
    if (outcome_.failed) outcome_.weight_gradients.clear();
    return outcome_;
  }

 private:
  static constexpr uint64_t kPoison = 0xdeadbeefdeadbeefull;
  struct Slot {
    uint64_t saved = kPoison;
    uint64_t gradient = kPoison;  // of the output, kept by an input backward
  };

  static uint64_t Mix(uint64_t a, uint64_t b) {
    uint64_t x = (a ^ (b + 0x9e3779b97f4a7c15ull)) * 0xbf58476d1ce4e5b9ull;
    x ^= x >> 29;
    x *= 0x94d049bb133111ebull;
    return x ^ (x >> 32);
  }

  // Runs one instruction, or both of a joined pair in either order; returns how many.
  size_t Step(size_t r, size_t at) {
    const std::vector<PipelineInstruction>& list = lowered_.instructions[r];
    std::vector<size_t> run = {at};
    if (list[at].joined && at + 1 < list.size()) run.push_back(at + 1);
    if (run.size() == 2 && random_() % 2 == 0) std::swap(run[0], run[1]);
    for (size_t i : run) Execute(r, list[i]);
    for (size_t i : run) {
      if (list[i].frees_read) Write(r, list[i].reads, kPoison);
      if (list[i].frees_slot) SlotOf(r, list[i].slot) = {};
    }
    return run.size();
  }

  uint64_t Read(size_t r, int buffer) {
    if (buffer < 0 || static_cast<size_t>(buffer) >= buffers_[r].size()) {
      outcome_.failed = true;
      return 0;
    }
    const uint64_t value = buffers_[r][static_cast<size_t>(buffer)];
    outcome_.failed = outcome_.failed || value == kPoison;
    return value;
  }
  void Write(size_t r, int buffer, uint64_t value) {
    if (buffer < 0 || static_cast<size_t>(buffer) >= buffers_[r].size()) {
      outcome_.failed = true;
    } else {
      buffers_[r][static_cast<size_t>(buffer)] = value;
    }
  }
  Slot& SlotOf(size_t r, int slot) {
    if (slot < 0 || static_cast<size_t>(slot) >= slots_[r].size()) {
      outcome_.failed = true;
      return nothing_;
    }
    return slots_[r][static_cast<size_t>(slot)];
  }
  uint64_t Live(uint64_t value) {
    outcome_.failed = outcome_.failed || value == kPoison;
    return value;
  }

  void Execute(size_t r, const PipelineInstruction& i) {
    const uint64_t stage = static_cast<uint64_t>(i.stage);
    const bool last = i.stage + 1 == lowered_.placement.num_stages;
    switch (i.op) {
      case PipelineOp::kForward: {
        const uint64_t input = i.stage == 0 ? Mix(1, static_cast<uint64_t>(i.micro_batch)) : Read(r, i.reads);
        SlotOf(r, i.slot) = {Mix(input, 2 * stage), kPoison};
        if (!last) Write(r, i.writes, Mix(input, 2 * stage + 1));
        break;
      }
      case PipelineOp::kBackward:
      case PipelineOp::kBackwardInput: {
        Slot& slot = SlotOf(r, i.slot);
        const uint64_t saved = Live(slot.saved);
        const uint64_t gradient = last ? Mix(saved, 77) : Read(r, i.reads);
        if (i.stage > 0) Write(r, i.writes, Mix(gradient ^ saved, stage));
        if (i.op == PipelineOp::kBackward) {
          outcome_.weight_gradients[stage] += Mix(gradient, saved);
        } else {
          slot.gradient = gradient;
        }
        break;
      }
      case PipelineOp::kBackwardWeight: {
        const Slot& slot = SlotOf(r, i.slot);
        outcome_.weight_gradients[stage] += Mix(Live(slot.gradient), Live(slot.saved));
        break;
      }
      case PipelineOp::kSendActivation:
      case PipelineOp::kSendGradient:
        channels_[{static_cast<int>(r), i.peer}].push_back(Read(r, i.reads));
        break;
      default: {
        std::deque<uint64_t>& channel = channels_[{i.peer, static_cast<int>(r)}];
        if (channel.empty()) {
          outcome_.failed = true;
        } else {
          Write(r, i.writes, channel.front());
          channel.pop_front();
        }
      }
    }
  }

  const LoweredPipeline& lowered_;
  std::minstd_rand random_;
  PipelineOutcome outcome_;
  std::vector<std::vector<Slot>> slots_;
  std::vector<std::vector<uint64_t>> buffers_;
  std::map<std::pair<int, int>, std::deque<uint64_t>> channels_;
  Slot nothing_;
};

}  // namespace trainctl::schedule
