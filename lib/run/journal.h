// The journal of a run: what happened to it, one JSON object per line, each synced before the call
// returns. It can be read while it is written and after any crash: a torn last line is not an event.
// Format: {"v":1,"time":"<RFC 3339>","event":"<kind>", ...}. Reading is pure; a Journal is thread safe.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "telemetry/run_change.h"

namespace trainctl::run {

enum class EventKind {
  kLaunch,       // world_size, pid, host, socket; nodes, where there are several
  kGeneration,   // generation, world_size: of an assignment, written before its workers are told to go
  kWorkerExit,   // rank, host (where there are several), step (it was in, counted from 1; absent: during
                 // start-up), message
  kCheckpoint,   // step: committed
  kStop,         // message: who asked
  kRestart,      // message: why
  kEnd,          // status, message; of a failure also rank, step (as in kWorkerExit), exit_code
  kChange,       // message: what a resume changes of the run itself; step: of the checkpoint it goes on from
  kFromScratch,  // what was before is given up: the next launch begins at step 1
};

// How a launch ended, or that it has not.
enum class RunStatus { kNew, kRunning, kFinished, kStopped, kStoppedUnsaved, kFailed };
absl::string_view RunStatusName(RunStatus status);

struct JournalEvent {
  EventKind kind = EventKind::kLaunch;
  absl::Time time = absl::UnixEpoch();
  int64_t generation = -1;
  int64_t step = -1;
  int rank = -1;
  int world_size = 0;
  int64_t pid = 0;
  std::optional<int> exit_code = {};  // of a worker that ended by itself
  RunStatus status = RunStatus::kNew;
  std::string socket = {};
  std::string host = {};                // of the launcher, or of the worker
  std::vector<std::string> nodes = {};  // in the order of the ranks; empty: the launcher's host alone
  std::string message = {};
};

// What the journal says of a run; nothing else is asked.
struct RunState {
  RunStatus status = RunStatus::kNew;  // kRunning also after a launcher was killed
  int64_t generation = 0;              // the last one assigned
  int world_size = 0;
  int64_t num_launches = 0;
  int64_t num_restarts = 0;                 // of the last launch
  int64_t launches_without_checkpoint = 0;  // since the last checkpoint
  int64_t last_step = -1;                   // that the last failure was in, counted from 1
  int64_t last_checkpoint_step = -1;
  int64_t launcher_pid = 0;
  std::string socket = {};
  std::string host = {};                // of the last launch; empty: an older build's
  std::vector<std::string> nodes = {};  // of a launch on several machines
  std::string message;                  // of the last failure, stop or end
  // Of a launch that failed: the rank that failed first (-1: none did, but the job), and its exit code where
  // it ended by itself.
  int failed_rank = -1;
  std::optional<int> exit_code = {};
  std::vector<telemetry::RunChange> changes = {};  // since the run began at step 1, the first one first
  // "<path>:<line>: ...": the first line that is no JSON and was passed over; empty: none was.
  std::string damage = {};
  absl::Time started = absl::InfinitePast();             // the last launch
  absl::Time generation_started = absl::InfinitePast();  // its last start of all workers
  absl::Time ended = absl::InfinitePast();
  std::optional<JournalEvent> last = {};  // event
};

class Journal {
 public:
  // Creates the file if need be and cuts off a torn last line. The caller holds the run's lock.
  static absl::StatusOr<Journal> Open(const std::string& path, const Clock* clock);
  Journal(Journal&& other) noexcept;
  ~Journal();
  // Sets the event's time. Where it fails, the file is as it was before.
  absl::Status Append(JournalEvent event);

 private:
  Journal() = default;
  std::string path_;
  const Clock* clock_ = nullptr;
  int fd_ = -1;
  bool torn_ = false;  // ends with half a line that could not be cut off
  std::mutex mutex_;
};

// Replays the text of a journal. A line that is not JSON at all (a disk that was full, another program's
// output) is passed over and named in RunState::damage, unless no other line can be read. BadDataError names
// the line of an event that is wrong; a newer version is refused.
absl::StatusOr<RunState> ReplayJournal(absl::string_view text, absl::string_view path);

struct JournalText {
  std::vector<JournalEvent> events;
  std::string damage;  // as in RunState
};
// The events in `text`, as ReplayJournal reads them.
absl::StatusOr<JournalText> ParseJournal(absl::string_view text, absl::string_view path);
// As the line of a journal, without its end.
std::string EventToJson(const JournalEvent& event);

// Lines, and not one of them an event of this or of a newer format: ReplayJournal refuses it, and nothing is
// lost with it.
bool IsRubbish(absl::string_view text);

}  // namespace trainctl::run
