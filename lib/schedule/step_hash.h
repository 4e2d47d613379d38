// The hash of a step. Two steps with the same hash have the same programs and the same storage. `trainctl
// plan` and `trainctl launch --dry-run` show it, and plan.json stores it. Each worker computes it too, and
// refuses to run if its step has a different hash.
//
// The hash covers
//
// - a format version, the optimizer, the ZeRO stage, the element types and the mesh;
// - groups, stages and their placement, buckets and shards;
// - for every class, its streams, its values and their sizes, and its slots;
// - each instruction of all micro-batches, with its stream, waits, storage and temporary memory;
// - every field of the graph and of the parameters.
//
// It does not cover times, hosts, paths or the name of the pipeline schedule. HashStep is thread-safe.
#pragma once

#include <memory>
#include <string>

#include "layout/ledger.h"
#include "schedule/step.h"

namespace trainctl::schedule {

// Hashes a step while one class executes it: the executor adds each instruction of its own class in list
// order. The programs of the other classes are read from the step. If all instructions were added, the result
// is that of HashStep. `step` and `ledger` must outlive the hasher. Not thread-safe.
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
