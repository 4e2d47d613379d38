// A fingerprint of a step: two steps with one hash are the same programs over the same storage.
// `plan`, `launch --dry-run`, plan.json and every worker compute it, and a worker whose step has another hash
// refuses to run.
//
// Covered: a format version, the mesh, groups, stages and where they lie, buckets and shards; of every class
// its streams, values with bytes, slots, and each instruction with its stream, waits, storage and
// temporaries, all micro-batches expanded. Not covered: times, hosts, paths. Thread safe.
#pragma once

#include <memory>
#include <string>

#include "layout/ledger.h"
#include "schedule/step.h"

namespace trainctl::schedule {

// Hashes a step as it is executed by one class: each of its instructions is added in list order. The programs
// of other classes are hashed as they are written. All are borrowed.
class StepHasher {
 public:
  StepHasher(const Step& step, const layout::Ledger& ledger, int own_class);
  ~StepHasher();
  StepHasher(const StepHasher&) = delete;
  StepHasher& operator=(const StepHasher&) = delete;

  void Add(const Instruction& instruction);
  std::string Finish() const;  // 32 hexadecimal digits (XXH3-128)

 private:
  class State;
  const Step& step_;
  const layout::Ledger& ledger_;
  const int own_class_;
  std::unique_ptr<State> state_;
};

std::string HashStep(const Step& step, const layout::Ledger& ledger);

}  // namespace trainctl::schedule
