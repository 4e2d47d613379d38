// Checks from time to time that the data files are still the ones that the run began with.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "comm/group.h"
#include "data/file_stamps.h"
#include "trainer/checkpoint_saver.h"
#include "trainer/checkpointing.h"

namespace trainctl::trainer {

class DataFilesCheck {
 public:
  // Borrows all arguments, which must outlive it. Only rank 0 has stamps. All ranks read the same files, so
  // one rank's check is enough, and the shared file system gets one request per file.
  DataFilesCheck(std::optional<data::FileStamps>& stamps, comm::Group& world, CheckpointSaver& saver,
                 const RunCounters& counters);

  // Collective. Returns OK if no data file has changed. Otherwise saves the completed steps, so that the user
  // does not lose them after restoring the file, and returns an error. On rank 0 this is BadDataError, whose
  // message says which steps may have read the changed bytes. On the other ranks it is WorkerError.
  absl::Status Run();

  // Collective. Ends a run in which a rank cannot read a batch. `own` is this rank's error, or OK if only
  // other ranks have one. Saves the completed steps first. Never returns OK; returns WorkerError if `own` is
  // OK.
  absl::Status EndForLackOfData(const absl::Status& own);

 private:
  absl::Status FindChangedFile();

  std::optional<data::FileStamps>& stamps_;
  comm::Group& world_;
  CheckpointSaver& saver_;
  const RunCounters& counters_;
  int64_t checked_step_;  // last step after which no file was found to have changed
};

}  // namespace trainctl::trainer
