// The model alone in one process, in fp32 on the CPU: what one-process jobs on a checkpoint compute with.
#pragma once

#include <ATen/Parallel.h>

#include <exception>

#include "absl/status/status.h"
#include "base/status.h"
#include "device/error_text.h"
#include "model/model_spec.h"
#include "model/segment.h"
#include "parallel/executor.h"
#include "trainer/run_worker.h"

namespace trainctl::trainer {

class InferenceModel {
 public:
  InferenceModel(const InferenceDeps& deps, model::MicroBatchShape shape);
  InferenceModel(const InferenceModel&) = delete;
  InferenceModel& operator=(const InferenceModel&) = delete;

  // The checkpoint's weights, or those that the run begins with.
  absl::Status Load(const InferenceDeps& deps);

  const model::ModelSpec& spec() const { return spec_; }
  const layout::Ledger& ledger() const { return ledger_; }
  parallel::ShardedState& state() { return state_; }
  const schedule::BuildOptions& options() const { return options_; }
  const schedule::Step& forward() const { return forward_; }

 private:
  const model::ModelSpec spec_;
  const layout::Ledger ledger_;
  const schedule::BuildOptions options_;
  const schedule::Step forward_;
  parallel::ShardedState state_;
};

// What `function` returns, computed with the threads of `deps`; what LibTorch throws becomes an error.
template <typename Function>
auto Guarded(const InferenceDeps& deps, const Function& function) -> decltype(function()) {
  try {
    at::set_num_threads(deps.threads);
    return function();
  } catch (const std::exception& error) {
    return InternalError(device::ErrorText(error));
  }
}

}  // namespace trainctl::trainer
