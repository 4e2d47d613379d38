// An oracle that is independent of the checker: it executes the programs of all classes on numbers that stand
// for tensors, in a given interleaving of their streams, and says what went wrong. An instruction takes time:
// it begins, others run, it ends. Two of one class in flight that touch the same storage, one of them
// writing, are a race. Sums are additions, so every layout of a step comes to the same numbers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "schedule/step.h"

namespace trainctl::schedule {

inline uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15ull ^ (b + 0x7f4a7c15u) * 0xbf58476d1ce4e5b9ull;
  x ^= x >> 31;
  return x * 0x94d049bb133111ebull ^ x >> 29;
}

struct Outcome {
  std::string error;             // first fault, or empty
  std::vector<uint64_t> finals;  // of each bucket, wherever it lies; then loss and norm of each class
  bool operator==(const Outcome&) const = default;
};

// Picks the stream that makes the next move, among those that can: positions of (class, stream) in that
// order.
using Policy = std::function<size_t(const std::vector<size_t>& able)>;

class StepMachine {
 public:
  // ledger: null for an order alone.
  StepMachine(const Step& step, const layout::Ledger* ledger) : step_(step), ledger_(ledger) {
    for (size_t c = 0; c < step.programs.size(); ++c) {
      classes_.emplace_back();
      const Program& program = step.programs[c];
      classes_[c].done.assign(program.instructions.size(), false);
      first_unit_.push_back(units_.size());
      for (size_t s = 0; s < program.streams.size(); ++s) units_.push_back({c, {}, 0, false});
      for (size_t i = 0; i < program.instructions.size(); ++i) {
        const size_t stream = static_cast<size_t>(program.instructions[i].stream);
        units_[first_unit_[c] + stream].queue.push_back(static_cast<int>(i));
      }
    }
  }

  Outcome Run(const Policy& policy) {
    while (outcome_.error.empty()) {
      std::vector<size_t> able;
      bool finished = true;
      for (size_t u = 0; u < units_.size(); ++u) {
        const Unit& unit = units_[u];
        if (unit.next == unit.queue.size()) continue;
        finished = false;
        const int index = unit.queue[unit.next];
        if (unit.in_flight ? MayEnd(unit.own_class, index) : MayBegin(unit.own_class, index))
          able.push_back(u);
      }
      if (finished) break;
      if (able.empty()) return {.error = "deadlock", .finals = {}};
      Unit& unit = units_[policy(able)];
      const int index = unit.queue[unit.next];
      if (unit.in_flight) {
        End(unit.own_class, index);
        ++unit.next;
      } else {
        Begin(unit.own_class, index);
      }
      unit.in_flight = !unit.in_flight;
    }
    Finish();
    return outcome_;
  }

 private:
  // Storage of a class, as (kind, index). Parts of a gradient are apart: 2 * index + part.
  enum Kind { kValue, kParameterSlot, kGradientSlot, kParameter, kGradient, kPart, kScalar };
  enum Scalar { kTokens, kLossSum, kLoss, kNorm };
  using Storage = std::pair<int, int>;

  struct Unit {
    size_t own_class = 0;
    std::vector<int> queue;
    size_t next = 0;
    bool in_flight = false;
  };
  struct Access {
    std::vector<Storage> reads;
    std::vector<std::pair<Storage, uint64_t>> writes;
    std::vector<std::pair<int, uint64_t>> given;  // to groups of several classes: (group, number)
  };
  struct Class {
    std::map<Storage, uint64_t> memory;
    std::map<int, Access> in_flight;
    std::vector<bool> done;
    std::map<int, int> meetings;  // by group: how many it has begun
  };

  const Instruction& At(size_t c, int index) const {
    return step_.programs[c].instructions[static_cast<size_t>(index)];
  }

  // ---- who may go on ------------------------------------------------------------------------------

  bool MayBegin(size_t c, int index) const {
    const Instruction& i = At(c, index);
    for (int wait : i.waits) {
      if (!classes_[c].done[static_cast<size_t>(wait)]) return false;
    }
    if (i.op != Op::kReceive) return true;
    const auto channel = channels_.find({i.peer, static_cast<int>(c)});
    return channel != channels_.end() && channel->second.first < channel->second.second.size();
  }

  // What meets with other classes ends when all of them are there.
  bool MayEnd(size_t c, int index) const {
    for (int group : At(c, index).groups) {
      const auto own = classes_[c].meetings.find(group);
      for (int other : Members(group)) {
        const auto& theirs = classes_[static_cast<size_t>(other)].meetings;
        const auto it = theirs.find(group);
        if (it == theirs.end() || it->second < own->second) return false;
      }
    }
    return true;
  }

  const std::vector<int>& Members(int group) const {
    return step_.groups[static_cast<size_t>(group)].classes;
  }

  // The group of an instruction in which classes meet.
  int Meeting(const Instruction& i) const {
    return *std::find_if(i.groups.begin(), i.groups.end(),
                         [&](int group) { return !Members(group).empty(); });
  }

  void Fault(size_t c, int index, const std::string& what) {
    if (!outcome_.error.empty()) return;
    outcome_.error = absl::StrCat("class ", c, " ", Describe(At(c, index)), ": ", what);
  }

  // ---- begin and end --------------------------------------------------------------------------------

  // What was never written reads as something that no correct run holds.
  uint64_t Load(size_t c, const Storage& storage) const {
    const auto it = classes_[c].memory.find(storage);
    if (it != classes_[c].memory.end()) return it->second;
    const uint64_t start = Mix(static_cast<uint64_t>(storage.first), static_cast<uint64_t>(storage.second));
    if (storage.first == kParameter) return start;  // the model before the step
    if (storage.first == kScalar && storage.second == kLossSum) return 0;
    if (storage.first == kPart && ledger_ == nullptr) return 0;
    return Mix(start, 666 + c);
  }

  void Begin(size_t c, int index) {
    Access access = Evaluate(c, index);
    for (const auto& [other, theirs] : classes_[c].in_flight) {
      for (const auto& [storage, unused] : theirs.writes) {
        const bool mine = std::find(access.reads.begin(), access.reads.end(), storage) != access.reads.end();
        if (mine || Writes(access, storage)) Fault(c, index, "races with another's write");
      }
      for (const Storage& storage : theirs.reads) {
        if (Writes(access, storage)) Fault(c, index, "races with another's read");
      }
    }
    for (int group : At(c, index).groups) {
      if (Members(group).empty()) continue;
      const int meeting = classes_[c].meetings[group]++;
      for (const auto& [to, number] : access.given) {
        if (to == group) meeting_sums_[{group, meeting}] += number;
      }
    }
    classes_[c].in_flight.emplace(index, std::move(access));
  }

  static bool Writes(const Access& access, const Storage& storage) {
    return std::any_of(access.writes.begin(), access.writes.end(),
                       [&](const auto& write) { return write.first == storage; });
  }

  void End(size_t c, int index) {
    const Instruction& i = At(c, index);
    Class& own = classes_[c];
    for (const auto& [storage, content] : own.in_flight[index].writes) own.memory[storage] = content;
    for (int group : i.groups) {
      if (Members(group).empty()) continue;
      // All classes have given theirs.
      const uint64_t sum = meeting_sums_[{group, own.meetings[group] - 1}];
      if (i.op == Op::kSumCopies) own.memory[{kPart, i.bucket}] = sum;
      if (i.op == Op::kReduceLoss) own.memory[{kScalar, kLoss}] = Mix(sum, Load(c, {kScalar, kTokens}));
      if (i.op == Op::kGradNorm) own.memory[{kScalar, kNorm}] = Mix(sum, 5);
    }
    own.in_flight.erase(index);
    for (int value : i.frees) {
      if (own.memory.erase({kValue, value}) == 0) Fault(c, index, "frees what does not live");
    }
    own.done[static_cast<size_t>(index)] = true;
  }

  Access Evaluate(size_t c, int index) {
    const Instruction& i = At(c, index);
    Access access;
    const auto load = [&](Storage storage) {
      access.reads.push_back(storage);
      return Load(c, storage);
    };
    const auto store = [&](Storage storage, uint64_t content) {
      access.writes.push_back({storage, content});
    };
    const bool meets =
        std::any_of(i.groups.begin(), i.groups.end(), [&](int group) { return !Members(group).empty(); });
    for (int value : i.reads) {
      if (classes_[c].memory.count({kValue, value}) == 0) Fault(c, index, "reads what does not live");
    }
    switch (i.op) {
      case Op::kGather:
        store({kParameterSlot, i.slot}, load({kParameter, i.bucket}));
        break;
      case Op::kSend: {
        uint64_t sum = 0;
        for (int value : i.reads) sum += load({kValue, value});
        channels_[{static_cast<int>(c), i.peer}].second.push_back(sum);
        break;
      }
      case Op::kReceive: {
        auto& [next, sent] = channels_[{i.peer, static_cast<int>(c)}];
        for (int value : i.writes) store({kValue, value}, sent[next]);
        ++next;
        break;
      }
      case Op::kReduceGradient: {
        const bool in_slot = ledger_->gradients_sharded();
        uint64_t sum = i.first ? 0 : load({kPart, i.bucket});
        for (int part : {0, 1})
          sum += in_slot ? load({kGradientSlot, 2 * i.slot + part}) : load({kGradient, 2 * i.bucket + part});
        // Only what is summed over all data axes is a gradient.
        store({kPart, i.bucket}, i.groups.size() > 1 ? sum * 77 : sum);
        break;
      }
      case Op::kSumCopies: {
        const uint64_t part = load({kPart, i.bucket});
        // The numbers stand for all ranks of tp together. With other classes it is replaced at its end.
        if (meets) access.given.push_back({Meeting(i), part});
        access.writes.push_back({{kPart, i.bucket}, meets ? 0 : part});
        break;
      }
      case Op::kCountLossTokens:
        store({kScalar, kTokens}, 1234567);
        break;
      case Op::kReduceLoss:
        if (meets) {
          access.given.push_back({Meeting(i), load({kScalar, kLossSum})});
          store({kScalar, kLoss}, 0);
        } else {
          store({kScalar, kLoss}, Mix(load({kScalar, kLossSum}), load({kScalar, kTokens})));
        }
        break;
      case Op::kGradNorm: {
        uint64_t norm = 0;
        for (int bucket : ledger_->BucketsOfOwner(static_cast<int>(c))) {
          const uint64_t part = load({kPart, bucket});
          if (ledger_->owners(bucket)[0] == static_cast<int>(c)) norm += Mix(part, 3);
        }
        load({kScalar, kLoss});
        if (meets) access.given.push_back({Meeting(i), norm});
        store({kScalar, kNorm}, meets ? 0 : Mix(norm, 5));
        break;
      }
      case Op::kOptimizerStep:
        store({kParameter, i.bucket},
              Mix(load({kParameter, i.bucket}), load({kPart, i.bucket}) + load({kScalar, kNorm})));
        break;
      case Op::kGatherUpdated:
        store({kParameter, i.bucket}, Mix(load({kParameter, i.bucket}), 99));
        break;
      default:
        RunBlock(c, i, load, store);
    }
    return access;
  }

  // ---- blocks ---------------------------------------------------------------------------------------

  // Values are read by what they hold, whatever their number.
  template <typename LoadFn, typename StoreFn>
  void RunBlock(size_t c, const Instruction& i, const LoadFn& load, const StoreFn& store) {
    const Program& program = step_.programs[c];
    const bool forwards = i.op == Op::kForward || i.op == Op::kRecompute;
    uint64_t hash = Mix(forwards                                            ? 1
                        : i.op == Op::kLossAndGradient || i.op == Op::kLoss ? 2
                                                                            : 3,
                        static_cast<uint64_t>(i.block * 1000 + i.micro_batch));
    uint64_t inputs = 0;
    for (int value : i.reads) inputs += load({kValue, value});
    hash = Mix(hash, inputs);
    if (i.op == Op::kBackwardWeight) hash = inputs;  // that its input gradient left
    const bool backwards = i.op == Op::kBackward || i.op == Op::kBackwardInput;
    if (ledger_ != nullptr && i.op != Op::kBackwardWeight && !(backwards && i.block == 0)) {
      const std::vector<int>& buckets = ledger_->buckets_of_block(i.block);
      for (size_t k = 0; k < buckets.size(); ++k) {
        hash = Mix(hash, ledger_->parameters_sharded() ? load({kParameterSlot, i.parameter_slots[k]})
                                                       : load({kParameter, buckets[k]}));
      }
    }
    if (i.op == Op::kLossAndGradient) {
      hash = Mix(hash, load({kScalar, kTokens}));
      store({kScalar, kLossSum}, load({kScalar, kLossSum}) + hash);
    }
    for (int part : {0, 1}) WritePart(i, part, hash, load, store);
    for (int value : i.writes) {
      const Value& v = program.values[static_cast<size_t>(value)];
      // What is queued stands for the whole backward, whose weight gradients are to be the same.
      store({kValue, value}, v.kind == ValueKind::kQueued ? hash : Mix(hash, static_cast<uint64_t>(v.kind)));
    }
  }

  template <typename LoadFn, typename StoreFn>
  void WritePart(const Instruction& i, int part, uint64_t hash, const LoadFn& load, const StoreFn& store) {
    const bool joint = i.op == Op::kBackward || i.op == Op::kLossAndGradient;
    if (!joint && i.op != (part == 0 ? Op::kBackwardInput : Op::kBackwardWeight)) return;
    const auto mine = [&](int bucket) { return Mix(hash, static_cast<uint64_t>(2 * bucket + part) + 31); };
    if (ledger_ == nullptr) {
      const Storage sum{kPart, 2 * i.block + part};
      store(sum, load(sum) + mine(i.block));
      return;
    }
    const std::vector<int>& buckets = ledger_->buckets_of_block(i.block);
    for (size_t k = 0; k < i.gradients.size(); ++k) {
      const GradientWrite& write = i.gradients[k];
      const Storage storage = ledger_->gradients_sharded() ? Storage{kGradientSlot, 2 * write.slot + part}
                                                           : Storage{kGradient, 2 * buckets[k] + part};
      const bool adds = part == 0 ? write.accumulate : write.accumulate_weights;
      store(storage, adds ? load(storage) + mine(buckets[k]) : mine(buckets[k]));
    }
  }

  // ---- the end ----------------------------------------------------------------------------------------

  void Finish() {
    for (size_t c = 0; c < classes_.size(); ++c) {
      for (const auto& [storage, content] : classes_[c].memory) {
        if (storage.first == kValue && outcome_.error.empty()) outcome_.error = "a value is left";
      }
    }
    for (const auto& [pair, channel] : channels_) {
      if (channel.first < channel.second.size() && outcome_.error.empty())
        outcome_.error = "a message is left";
    }
    const int num_buckets = ledger_ != nullptr ? ledger_->num_buckets() : 2 * step_.num_blocks();
    for (int bucket = 0; bucket < num_buckets; ++bucket) outcome_.finals.push_back(FinalOf(bucket));
    if (ledger_ == nullptr || !step_.has_update) return;
    for (size_t c = 0; c < classes_.size(); ++c) {
      for (Scalar scalar : {kLoss, kNorm}) {
        const uint64_t own = Load(c, {kScalar, scalar});
        if (c == 0) outcome_.finals.push_back(own);
        if (own != Load(0, {kScalar, scalar}) && outcome_.error.empty())
          outcome_.error = "classes differ in loss or norm";
      }
    }
  }

  uint64_t FinalOf(int bucket) {
    if (ledger_ == nullptr) {
      uint64_t sum = 0;
      for (size_t c = 0; c < classes_.size(); ++c) sum += Load(c, {kPart, bucket});
      return sum;
    }
    const std::vector<int>& owners = ledger_->owners(bucket);
    const uint64_t first = Load(static_cast<size_t>(owners[0]), {kParameter, bucket});
    for (int owner : owners) {
      if (Load(static_cast<size_t>(owner), {kParameter, bucket}) != first && outcome_.error.empty())
        outcome_.error = absl::StrCat("owners of bucket ", bucket, " differ");
    }
    return first;
  }

  const Step& step_;
  const layout::Ledger* ledger_;
  std::vector<Class> classes_;
  std::vector<Unit> units_;
  std::vector<size_t> first_unit_;                                                    // by class
  std::map<std::pair<int, int>, std::pair<size_t, std::vector<uint64_t>>> channels_;  // received, sent
  std::map<std::pair<int, int>, uint64_t> meeting_sums_;                              // by group and meeting
  Outcome outcome_;
};

// The interleavings to try: always the first or the last that can, then random ones.
inline std::vector<Policy> Policies(int num_random) {
  std::vector<Policy> policies = {[](const std::vector<size_t>& able) { return able.front(); },
                                  [](const std::vector<size_t>& able) { return able.back(); }};
  for (int seed = 0; seed < num_random; ++seed) {
    policies.push_back([state = static_cast<uint64_t>(seed)](const std::vector<size_t>& able) mutable {
      state = Mix(state, 17);
      return able[state % able.size()];
    });
  }
  return policies;
}

}  // namespace trainctl::schedule
