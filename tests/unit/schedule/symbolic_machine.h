// An oracle that is independent of the checker: it executes a schedule on numbers that stand for
// tensors, in a given interleaving of the streams, and says what went wrong. An instruction takes
// time: it begins, others run, it ends. Two in flight that touch the same storage, one of them
// writing, are a race.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "schedule/schedule.h"

namespace trainctl::schedule {

inline uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15ull ^ (b + 0x7f4a7c15u) * 0xbf58476d1ce4e5b9ull;
  x ^= x >> 31;
  return x * 0x94d049bb133111ebull ^ x >> 29;
}

struct SymbolicResult {
  std::string error;             // first fault, or empty
  std::vector<uint64_t> finals;  // parameters after the step, loss, norm
  bool operator==(const SymbolicResult&) const = default;
};

// Picks the stream that makes the next move, among those that can.
using Policy = std::function<size_t(const std::vector<size_t>& able)>;

class SymbolicMachine {
 public:
  SymbolicMachine(const Schedule& schedule, const layout::Ledger& ledger)
      : schedule_(schedule), ledger_(ledger) {}

  SymbolicResult Run(const Policy& policy) {
    std::array<std::vector<int>, kNumStreams> queues;
    for (size_t i = 0; i < schedule_.instructions.size(); ++i) {
      queues[static_cast<size_t>(schedule_.instructions[i].stream)].push_back(static_cast<int>(i));
    }
    std::array<size_t, kNumStreams> next = {0, 0, 0};
    std::array<bool, kNumStreams> in_flight = {false, false, false};
    done_.assign(schedule_.instructions.size(), false);
    while (result_.error.empty()) {
      std::vector<size_t> able;
      bool finished = true;
      for (size_t s = 0; s < kNumStreams; ++s) {
        if (next[s] == queues[s].size()) continue;
        finished = false;
        if (in_flight[s] || Ready(queues[s][next[s]])) able.push_back(s);
      }
      if (finished) break;
      if (able.empty()) return {.error = "deadlock", .finals = {}};
      const size_t s = policy(able);
      const int index = queues[s][next[s]];
      if (in_flight[s]) {
        End(index);
        ++next[s];
      } else {
        Begin(index);
      }
      in_flight[s] = !in_flight[s];
    }
    Finish();
    return result_;
  }

 private:
  // Storage, as (kind, index).
  enum Kind { kValue, kParameterSlot, kGradientSlot, kParameter, kGradient, kPart, kScalar };
  enum Scalar { kTokens, kLossSum, kLoss, kNorm };
  using Storage = std::pair<int, int>;

  struct Access {
    std::vector<Storage> reads;
    std::vector<std::pair<Storage, uint64_t>> writes;
  };

  bool Ready(int index) const {
    for (int wait : schedule_.instructions[static_cast<size_t>(index)].waits) {
      if (!done_[static_cast<size_t>(wait)]) return false;
    }
    return true;
  }

  void Fault(int index, const std::string& what) {
    if (!result_.error.empty()) return;
    result_.error = absl::StrCat(Describe(schedule_.instructions[static_cast<size_t>(index)]), ": ", what);
  }

  // What was never written reads as something that no correct run holds.
  uint64_t Load(const Storage& storage) const {
    const auto it = memory_.find(storage);
    if (it != memory_.end()) return it->second;
    const uint64_t start = Mix(static_cast<uint64_t>(storage.first), static_cast<uint64_t>(storage.second));
    if (storage.first == kParameter) return start;  // the model before the step
    return Mix(start, 666);
  }

  void Begin(int index) {
    Access access = Evaluate(index);
    for (const auto& [other, theirs] : in_flight_) {
      for (const auto& [storage, unused] : theirs.writes) {
        const bool mine = std::find(access.reads.begin(), access.reads.end(), storage) != access.reads.end();
        if (mine || Writes(access, storage)) Fault(index, "races with another's write");
      }
      for (const Storage& storage : theirs.reads) {
        if (Writes(access, storage)) Fault(index, "races with another's read");
      }
    }
    in_flight_.emplace(index, std::move(access));
  }

  static bool Writes(const Access& access, const Storage& storage) {
    return std::any_of(access.writes.begin(), access.writes.end(),
                       [&](const auto& write) { return write.first == storage; });
  }

  void End(int index) {
    for (const auto& [storage, content] : in_flight_[index].writes) memory_[storage] = content;
    in_flight_.erase(index);
    for (int value : schedule_.instructions[static_cast<size_t>(index)].frees) {
      if (memory_.erase({kValue, value}) == 0) Fault(index, "frees what does not live");
    }
    done_[static_cast<size_t>(index)] = true;
  }

  Access Evaluate(int index) {
    const Instruction& i = schedule_.instructions[static_cast<size_t>(index)];
    Access access;
    const auto load = [&](Storage storage) {
      access.reads.push_back(storage);
      return Load(storage);
    };
    const auto store = [&](Storage storage, uint64_t content) {
      access.writes.push_back({storage, content});
    };
    uint64_t hash = Mix(static_cast<uint64_t>(i.op == Op::kRecompute ? Op::kForward : i.op),
                        static_cast<uint64_t>(i.block * 1000 + i.micro_batch));
    uint64_t inputs = 0;
    for (int value : i.reads) {
      if (memory_.count({kValue, value}) == 0) Fault(index, "reads what does not live");
      inputs += load({kValue, value});
    }
    hash = Mix(hash, inputs);
    switch (i.op) {
      case Op::kGather:
        store({kParameterSlot, i.slot}, load({kParameter, i.bucket}));
        break;
      case Op::kReduceGradient: {
        const bool in_slot = ledger_.gradients_sharded();
        uint64_t sum = in_slot ? load({kGradientSlot, i.slot}) : load({kGradient, i.bucket});
        if (!i.first) sum += load({kPart, i.bucket});
        store({kPart, i.bucket}, i.last ? Mix(sum, 77) : sum);
        break;
      }
      case Op::kCountLossTokens:
        store({kScalar, kTokens}, 1234567);
        break;
      case Op::kReduceLoss:
        store({kScalar, kLoss}, Mix(load({kScalar, kLossSum}), load({kScalar, kTokens})));
        break;
      case Op::kGradNorm: {
        uint64_t norm = load({kScalar, kLoss});
        for (int bucket = 0; bucket < ledger_.num_buckets(); ++bucket) norm += load({kPart, bucket});
        store({kScalar, kNorm}, Mix(norm, 5));
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
        RunBlock(i, hash, load, store);
    }
    for (size_t k = 0; k < i.writes.size(); ++k) {
      // A recomputed block saves what its forward would have saved second.
      store({kValue, i.writes[k]}, Mix(hash_, i.op == Op::kRecompute ? 1 : k));
    }
    return access;
  }

  template <typename LoadFn, typename StoreFn>
  void RunBlock(const Instruction& i, uint64_t hash, const LoadFn& load, const StoreFn& store) {
    const std::vector<int>& buckets = ledger_.buckets_of_block(i.block);
    for (size_t k = 0; k < buckets.size(); ++k) {
      if (i.op == Op::kBackward && i.block == 0) continue;  // reads no parameters
      hash = Mix(hash, ledger_.parameters_sharded() ? load({kParameterSlot, i.parameter_slots[k]})
                                                    : load({kParameter, buckets[k]}));
    }
    if (i.op == Op::kLossAndGradient) {
      hash = Mix(hash, load({kScalar, kTokens}));
      store({kScalar, kLossSum}, (memory_.count({kScalar, kLossSum}) ? load({kScalar, kLossSum}) : 0) + hash);
    }
    for (size_t k = 0; k < i.gradient_slots.size(); ++k) {
      const Storage storage = ledger_.gradients_sharded() ? Storage{kGradientSlot, i.gradient_slots[k]}
                                                          : Storage{kGradient, buckets[k]};
      const uint64_t mine = Mix(hash, static_cast<uint64_t>(buckets[k]) + 31);
      store(storage, i.accumulate[k] ? load(storage) + mine : mine);
    }
    hash_ = hash;
  }

  void Finish() {
    for (const auto& [storage, content] : memory_) {
      if (storage.first == kValue && result_.error.empty()) result_.error = "a value is left";
    }
    for (int bucket = 0; bucket < ledger_.num_buckets(); ++bucket) {
      result_.finals.push_back(Load({kParameter, bucket}));
    }
    result_.finals.push_back(Load({kScalar, kLoss}));
    result_.finals.push_back(Load({kScalar, kNorm}));
  }

  const Schedule& schedule_;
  const layout::Ledger& ledger_;
  std::map<Storage, uint64_t> memory_;
  std::map<int, Access> in_flight_;
  std::vector<bool> done_;
  uint64_t hash_ = 0;
  SymbolicResult result_;
};

// The interleavings to try: every order of priority among the streams, then random ones.
inline std::vector<Policy> Policies(int num_random) {
  std::vector<Policy> policies;
  std::array<size_t, kNumStreams> order = {0, 1, 2};
  do {
    policies.push_back([order](const std::vector<size_t>& able) {
      for (size_t stream : order) {
        if (std::find(able.begin(), able.end(), stream) != able.end()) return stream;
      }
      return able[0];
    });
  } while (std::next_permutation(order.begin(), order.end()));
  for (int seed = 0; seed < num_random; ++seed) {
    policies.push_back([state = static_cast<uint64_t>(seed)](const std::vector<size_t>& able) mutable {
      state = Mix(state, 17);
      return able[state % able.size()];
    });
  }
  return policies;
}

}  // namespace trainctl::schedule
