// Reads and writes a run's journal, a log with one JSON event per line. Each event is synced to disk before
// Append returns. The journal can be read while it is being written and after any crash; an incomplete last
// line does not count as an event. Format: {"v":1,"time":"<RFC 3339>","event":"<kind>", ...}. The parsing
// functions are pure, and a Journal is thread-safe.
#pragma once

#include <algorithm>
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

// The kinds of events, and the fields that each one sets.
enum class EventKind {
  // A launch begins. Sets world_size, pid, host, socket, and metrics; also nodes if there are several.
  kLaunch,
  // A generation is about to start its workers. Sets generation and world_size.
  kGeneration,
  // A worker has failed. Sets rank, message, exit_code, and step, the worker's current step counted from 1
  // (absent during startup). Also sets host if there are several nodes.
  kWorkerExit,
  // A checkpoint has been committed. Sets step.
  kCheckpoint,
  // The run was asked to stop. `message` says by whom.
  kStop,
  // The workers restart. `message` gives the reason.
  kRestart,
  // A launch ends. Sets status, message, and launch_exit_code. A failure also sets rank, step (as in
  // kWorkerExit), and exit_code.
  kEnd,
  // A resume changed the run. `message` describes the change, and `step` is the checkpoint it resumes from.
  kChange,
  // Earlier training is discarded, and the next launch starts at step 1. Sets no fields.
  kFromScratch,
};

// The outcome of a launch, or kRunning until it has one. kNew if the run has never been launched.
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
  std::optional<int> exit_code = {};  // worker's exit code; unset if a signal killed it
  RunStatus status = RunStatus::kNew;
  std::string socket = {};
  std::string host = {};                // host of the launcher or of the worker
  std::vector<std::string> nodes = {};  // nodes in rank order; empty if the launcher's host is the only one
  std::string message = {};
  std::string metrics = {};                  // URL or file of the run's Prometheus metrics; may be empty
  std::optional<int> launch_exit_code = {};  // launcher's exit code
};

// A run's state, derived only from its journal.
struct RunState {
  RunStatus status = RunStatus::kNew;  // remains kRunning if the launcher was killed
  int64_t generation = 0;              // latest generation assigned
  int world_size = 0;
  int64_t num_launches = 0;
  int64_t num_restarts = 0;                 // restarts during the latest launch
  int64_t launches_without_checkpoint = 0;  // launches since the latest checkpoint
  int64_t last_step = -1;                   // step of the latest failure, counted from 1
  int64_t last_checkpoint_step = -1;
  int64_t launcher_pid = 0;
  std::string socket = {};
  std::string host = {};  // host of the latest launch; empty if an older build wrote the journal
  std::vector<std::string> nodes = {};  // nodes in rank order, if the launch spans several
  std::string message;                  // message of the latest failure, stop, or end
  // Messages of the launches that have failed since the last checkpoint, oldest first, without repeats.
  std::vector<std::string> failures = {};
  // For a failed launch, the first rank that failed, or -1 if the job failed rather than a worker.
  // `exit_code` is that worker's exit code; it is unset if a signal killed the worker.
  int failed_rank = -1;
  std::optional<int> exit_code = {};
  // Changes since the run started at step 1, oldest first.
  std::vector<telemetry::RunChange> changes = {};
  // "<path>:<line>: ..." for the first line that was skipped because it is not JSON. Empty if there is none.
  std::string damage = {};
  absl::Time started = absl::InfinitePast();             // start of the latest launch
  absl::Time generation_started = absl::InfinitePast();  // start of that launch's latest generation
  absl::Time ended = absl::InfinitePast();
  std::optional<JournalEvent> last = {};              // latest event
  absl::Time last_checkpoint = absl::InfinitePast();  // time when last_checkpoint_step was recorded
  std::string metrics = {};                           // JournalEvent::metrics of the latest launch

  // Steps that end later were done by the current workers; there are none before the first generation.
  absl::Time workers_started() const { return std::max(started, generation_started); }
};

class Journal {
 public:
  // Opens the journal, creating it if needed, and removes an incomplete last line. The caller must hold the
  // run's lock. `clock` must outlive the journal.
  static absl::StatusOr<Journal> Open(const std::string& path, const Clock* clock);
  Journal(Journal&& other) noexcept;
  ~Journal();
  // Appends `event`, setting its time to the current time if it has none. Blocks until the event is on disk.
  // On failure, the file is unchanged.
  absl::Status Append(JournalEvent event);

 private:
  Journal() = default;
  std::string path_;
  const Clock* clock_ = nullptr;
  int fd_ = -1;
  bool torn_ = false;  // whether the file ends in an incomplete line that could not be removed
  std::mutex mutex_;
};

// Replays a journal's text. Lines that are not JSON, for example because the disk was full or another program
// wrote to the file, are skipped, and RunState::damage describes the first. Returns BadDataError with the
// line number if an event is invalid or has a newer format, or if no line can be read.
absl::StatusOr<RunState> ReplayJournal(absl::string_view text, absl::string_view path);

// Updates `state` for `event`, the next event in the journal.
void ApplyEvent(const JournalEvent& event, RunState& state);

struct JournalText {
  std::vector<JournalEvent> events;
  std::string damage;  // same as RunState::damage
};
// Parses the events in `text`. Skips damaged lines and returns the same errors as ReplayJournal.
absl::StatusOr<JournalText> ParseJournal(absl::string_view text, absl::string_view path);
// Formats the event as a journal line, without the trailing newline.
std::string EventToJson(const JournalEvent& event);

// Whether the text contains lines but no event in this or a newer format. ReplayJournal rejects such text,
// and it can be discarded without losing anything.
bool IsRubbish(absl::string_view text);

}  // namespace trainctl::run
