// Starts a worker: connects the ranks, opens the data, allocates the state, restores the newest checkpoint
// and opens the logs.
#pragma once

#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "comm/communicator.h"
#include "data/batch_source.h"
#include "data/file_stamps.h"
#include "device/device.h"
#include "parallel/executor.h"
#include "parallel/groups.h"
#include "parallel/sharded_state.h"
#include "trainer/batch_reader.h"
#include "trainer/checkpoint_saver.h"
#include "trainer/checkpointing.h"
#include "trainer/fault_injector.h"
#include "trainer/planned_run.h"
#include "trainer/run_worker.h"
#include "trainer/training_log.h"

namespace trainctl::trainer {

// The objects that a start creates. They are destroyed in reverse order, so the saver, whose thread uses the
// log and the state, is destroyed first.
struct StartedRun {
  std::unique_ptr<comm::Communicator> communicator;
  std::optional<comm::Group> world;  // all ranks, for scalars between the hosts
  parallel::Groups groups;
  std::optional<data::FileStamps> data_stamps;  // only on rank 0; taken before the data was opened
  data::DataSets data;
  std::unique_ptr<BatchReader> batches;
  std::unique_ptr<parallel::ShardedState> state;
  std::unique_ptr<parallel::Executor> executor;
  RunCounters counters;
  std::unique_ptr<TrainingLog> log;
  std::unique_ptr<CheckpointSaver> saver;
};

// Collective over all workers. Fills `run`; after a failure, `run` contains only the objects created before
// it. `run` borrows the other arguments. Returns UsageError if the plan does not fit the recipe or the number
// of workers.
absl::Status Start(const WorkerDeps& deps, const device::Device& device, const PlannedRun& planned,
                   FaultInjector& fault, StartedRun& run);

}  // namespace trainctl::trainer
