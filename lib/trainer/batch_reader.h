// Reads this rank's sequences of each batch. A training batch is read before the ranks vote on the next step.
// If a rank cannot read it, the ranks can still save the completed steps.
//
//   reader.ReadAhead(step + 1);       // starts to read while a device computes `step`
//   reader.ReadNext(step + 1);        // waits for the batch
//   if (!reader.status().ok()) ...    // reported to the other ranks first
//   reader.Take(step + 1);
#pragma once

#include <cstdint>
#include <future>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/batch_source.h"
#include "device/device.h"
#include "layout/mesh.h"
#include "nn/segment_runner.h"
#include "plan/plan.h"
#include "recipe/recipe.h"

namespace trainctl::trainer {

// A hash of a batch in two halves, each exact in a double. The sums over the ranks that hold the batch's
// sequences do not depend on how the sequences are distributed among the ranks.
struct BatchHash {
  double low = 0;
  double high = 0;
};
// Combines the sums of both halves over the ranks into one hash.
uint64_t JoinHash(const BatchHash& sum);

// Returns a view of `batch` for each micro-batch of a step.
std::vector<nn::TokenView> MicroBatches(const data::Batch& batch, const plan::PlannedStep& step);

// Borrows all arguments, which must outlive it. Not thread-safe.
class BatchReader {
 public:
  BatchReader(const recipe::Recipe& recipe, const device::Device& device, const layout::Mesh& mesh, int rank,
              const data::BatchSource& train);

  // Returns this rank's sequences of a source's batch. Steps count from 0, here and below.
  absl::StatusOr<data::Batch> Read(const data::BatchSource& source, int64_t step) const;

  // Starts to read a training batch on another thread, unless `step` is after the last one. Does nothing on
  // the CPU, because the thread would take a core from the step. If no thread can be started, ReadNext reads
  // the batch.
  void ReadAhead(int64_t step);
  // Reads a training batch for Take, or waits for the one that is being read ahead. Stores a failure in
  // status().
  void ReadNext(int64_t step);
  // Returns the result of ReadNext until Take is called. Returns OK if no batch was read.
  absl::Status status() const { return next_.has_value() ? next_->status() : absl::OkStatus(); }
  // Returns the training batch of ReadNext, or reads it now.
  absl::StatusOr<data::Batch> Take(int64_t step);

  // Hashes this rank's sequences of a training batch.
  BatchHash Hash(const data::Batch& batch) const;

 private:
  const recipe::Recipe& recipe_;
  const device::Device& device_;
  const layout::Mesh& mesh_;
  const int rank_;
  const data::BatchSource& train_;
  std::optional<absl::StatusOr<data::Batch>> next_;
  std::future<absl::StatusOr<data::Batch>> ahead_;
};

}  // namespace trainctl::trainer
