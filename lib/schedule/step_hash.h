// A fingerprint of a step: two steps with one hash are the same programs over the same storage. `plan`,
// `launch
// --dry-run`, plan.json and every worker compute it, and a worker whose step has another hash refuses to run.
//
// Covered: a format version, the mesh and its groups, buckets and shards, values with bytes, slots, and each
// instruction with its stream, waits, storage and temporaries, all micro-batches expanded. Not covered:
// times, hosts, paths. Thread safe.
#pragma once

#include <memory>
#include <string>

#include "layout/ledger.h"
#include "schedule/schedule.h"

namespace trainctl::schedule {

// Hashes a step as it is executed: what instructions refer to first, then each instruction in list order.
class StepHasher {
 public:
  StepHasher(const Schedule& schedule, const layout::Ledger& ledger);
  ~StepHasher();
  StepHasher(const StepHasher&) = delete;
  StepHasher& operator=(const StepHasher&) = delete;

  void Add(const Instruction& instruction);
  std::string Finish() const;  // 32 hexadecimal digits (XXH3-128)

 private:
  class State;
  std::unique_ptr<State> state_;
};

std::string HashStep(const Schedule& schedule, const layout::Ledger& ledger);

}  // namespace trainctl::schedule
