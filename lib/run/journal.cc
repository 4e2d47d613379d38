#include "run/journal.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/files.h"
#include "base/folder_sync.h"
#include "base/json.h"
#include "base/status.h"

namespace trainctl::run {
namespace {

constexpr int64_t kVersion = 1;

constexpr std::array<std::pair<EventKind, const char*>, 9> kKindNames = {{
    {EventKind::kLaunch, "launch"},
    {EventKind::kGeneration, "generation"},
    {EventKind::kWorkerExit, "worker_exit"},
    {EventKind::kCheckpoint, "checkpoint"},
    {EventKind::kStop, "stop"},
    {EventKind::kRestart, "restart"},
    {EventKind::kEnd, "end"},
    {EventKind::kChange, "change"},
    {EventKind::kFromScratch, "from_scratch"},
}};

constexpr std::array<std::pair<RunStatus, const char*>, 6> kStatusNames = {{
    {RunStatus::kNew, "new"},
    {RunStatus::kRunning, "running"},
    {RunStatus::kFinished, "finished"},
    {RunStatus::kStopped, "stopped"},
    {RunStatus::kStoppedUnsaved, "stopped-unsaved"},
    {RunStatus::kFailed, "failed"},
}};

Json ToJson(const JournalEvent& event) {
  Json line = {{"v", kVersion},
               {"time", absl::FormatTime(absl::RFC3339_full, event.time, absl::UTCTimeZone())}};
  for (const auto& [kind, name] : kKindNames) {
    if (kind == event.kind) line["event"] = name;
  }
  if (event.generation >= 0) line["generation"] = event.generation;
  if (event.step >= 0) line["step"] = event.step;
  if (event.rank >= 0) line["rank"] = event.rank;
  if (event.world_size > 0) line["world_size"] = event.world_size;
  if (event.pid > 0) line["pid"] = event.pid;
  if (event.exit_code.has_value()) line["exit_code"] = *event.exit_code;
  if (event.kind == EventKind::kEnd) line["status"] = std::string(RunStatusName(event.status));
  if (!event.socket.empty()) line["socket"] = event.socket;
  if (!event.host.empty()) line["host"] = event.host;
  if (!event.nodes.empty()) line["nodes"] = event.nodes;
  if (!event.message.empty()) line["message"] = event.message;
  if (!event.metrics.empty()) line["metrics"] = event.metrics;
  if (event.launch_exit_code.has_value()) line["launch_exit_code"] = *event.launch_exit_code;
  return line;
}

int64_t IntOr(const Json& line, const char* key, int64_t fallback) {
  const auto it = line.find(key);
  return it != line.end() && it->is_number_integer() ? it->get<int64_t>() : fallback;
}

std::string TextOr(const Json& line, const char* key) {
  const auto it = line.find(key);
  return it != line.end() && it->is_string() ? it->get<std::string>() : std::string();
}

std::vector<std::string> TextsOr(const Json& line, const char* key) {
  std::vector<std::string> texts;
  const auto it = line.find(key);
  if (it == line.end() || !it->is_array()) return texts;
  for (const Json& text : *it) {
    if (text.is_string()) texts.push_back(text.get<std::string>());
  }
  return texts;
}

absl::StatusOr<JournalEvent> ParseEvent(const Json& line, const std::string& what) {
  TRAINCTL_ASSIGN_OR_RETURN(const int64_t version, JsonInt(line, "v", what));
  if (version > kVersion) {
    return BadDataError(absl::StrCat(what, ": journal format ", version,
                                     " is newer than this trainctl reads (", kVersion, "); update trainctl"));
  }
  TRAINCTL_ASSIGN_OR_RETURN(const std::string name, JsonString(line, "event", what));
  JournalEvent event;
  bool known = false;
  for (const auto& [kind, kind_name] : kKindNames) {
    if (name != kind_name) continue;
    event.kind = kind;
    known = true;
  }
  if (!known) return BadDataError(absl::StrCat(what, ": unknown event '", name, "'"));
  std::string error;
  if (!absl::ParseTime(absl::RFC3339_full, TextOr(line, "time"), &event.time, &error)) {
    return BadDataError(absl::StrCat(what, ": field 'time': ", error));
  }
  event.generation = IntOr(line, "generation", -1);
  event.step = IntOr(line, "step", -1);
  event.rank = static_cast<int>(IntOr(line, "rank", -1));
  event.world_size = static_cast<int>(IntOr(line, "world_size", 0));
  event.pid = IntOr(line, "pid", 0);
  if (const int64_t code = IntOr(line, "exit_code", -1); code >= 0) event.exit_code = static_cast<int>(code);
  event.socket = TextOr(line, "socket");
  event.host = TextOr(line, "host");
  event.nodes = TextsOr(line, "nodes");
  event.message = TextOr(line, "message");
  event.metrics = TextOr(line, "metrics");
  if (const int64_t code = IntOr(line, "launch_exit_code", -1); code >= 0) {
    event.launch_exit_code = static_cast<int>(code);
  }
  for (const auto& [status, status_name] : kStatusNames) {
    if (TextOr(line, "status") == status_name) event.status = status;
  }
  return event;
}

}  // namespace

absl::string_view RunStatusName(RunStatus status) {
  for (const auto& [candidate, name] : kStatusNames) {
    if (candidate == status) return name;
  }
  return "unknown";
}

absl::StatusOr<Journal> Journal::Open(const std::string& path, const Clock* clock) {
  Journal journal;
  journal.path_ = path;
  journal.clock_ = clock;
  journal.fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (journal.fd_ < 0) return ErrnoError("open the journal", path, errno);
  TRAINCTL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  if (!text.empty() && text.back() != '\n') {
    const size_t end = text.rfind('\n');
    const size_t keep_bytes = end == std::string::npos ? 0 : end + 1;
    if (::ftruncate(journal.fd_, static_cast<off_t>(keep_bytes)) != 0) {
      return ErrnoError("repair the journal", path, errno);
    }
  }
  return journal;
}

Journal::Journal(Journal&& other) noexcept
    : path_(std::move(other.path_)),
      clock_(other.clock_),
      fd_(std::exchange(other.fd_, -1)),
      torn_(other.torn_) {}

Journal::~Journal() {
  if (fd_ >= 0) ::close(fd_);
}

absl::Status Journal::Append(JournalEvent event) {
  std::lock_guard lock(mutex_);
  if (event.time == JournalEvent().time) event.time = clock_->Now();
  const std::string line = EventToJson(event) + "\n";
  // One write: a reader sees all of it or, after a crash, a torn tail.
  const off_t before = ::lseek(fd_, 0, SEEK_END);
  if (before < 0) return ErrnoError("find the end of the journal", path_, errno);
  const std::string bytes = absl::StrCat(torn_ ? "\n" : "", line);
  const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
  if (written != static_cast<ssize_t>(bytes.size())) {
    const int error_number = written < 0 ? errno : ENOSPC;
    // Half a line would swallow the next one.
    if (written > 0) torn_ = ::ftruncate(fd_, before) != 0;
    return ErrnoError("write the journal", path_, error_number);
  }
  torn_ = false;
  if (SyncOpenFileData(fd_) != 0) return ErrnoError("sync the journal", path_, errno);
  return absl::OkStatus();
}

std::string EventToJson(const JournalEvent& event) { return FormatJson(ToJson(event)); }

absl::StatusOr<JournalText> ParseJournal(absl::string_view text, absl::string_view path) {
  JournalText journal;
  absl::Status damage;
  int64_t line_number = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    if (end == absl::string_view::npos) break;  // torn
    ++line_number;
    const absl::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (line.empty()) continue;
    const std::string what = absl::StrCat(path, ":", line_number);
    const absl::StatusOr<Json> json = ParseJson(line, what);
    if (!json.ok()) {
      if (damage.ok()) damage = json.status();
      continue;
    }
    TRAINCTL_ASSIGN_OR_RETURN(JournalEvent event, ParseEvent(*json, what));
    journal.events.push_back(std::move(event));
  }
  if (!damage.ok() && journal.events.empty()) return damage;
  if (!damage.ok()) journal.damage = absl::StrCat(damage.message(), "; this line was skipped");
  return journal;
}

void ApplyEvent(const JournalEvent& event, RunState& state) {
  state.last = event;
  switch (event.kind) {
    case EventKind::kLaunch:
      state.status = RunStatus::kRunning;
      state.world_size = event.world_size;
      state.launcher_pid = event.pid;
      state.socket = event.socket;
      state.host = event.host;
      state.nodes = event.nodes;
      state.metrics = event.metrics;
      state.message.clear();
      state.num_restarts = 0;
      state.started = event.time;
      state.generation_started = absl::InfinitePast();
      state.failed_rank = -1;
      state.exit_code.reset();
      state.ended = absl::InfinitePast();
      ++state.num_launches;
      ++state.launches_without_checkpoint;
      break;
    case EventKind::kGeneration:
      state.generation = event.generation;
      state.world_size = event.world_size;
      state.generation_started = event.time;
      break;
    case EventKind::kWorkerExit:
      state.message = event.message;
      state.last_step = event.step;
      break;
    case EventKind::kCheckpoint:
      state.last_checkpoint_step = event.step;
      state.last_checkpoint = event.time;
      state.launches_without_checkpoint = 0;
      state.failures.clear();
      break;
    case EventKind::kStop:
      state.message = event.message;
      break;
    case EventKind::kChange:
      state.changes.push_back({event.step, event.message});
      break;
    case EventKind::kFromScratch:
      state.last_checkpoint_step = -1;
      state.last_checkpoint = absl::InfinitePast();
      state.changes.clear();
      state.failures.clear();
      break;
    case EventKind::kRestart:
      ++state.num_restarts;
      break;
    case EventKind::kEnd:
      state.status = event.status;
      state.message = event.message;
      state.ended = event.time;
      state.failed_rank = event.rank;
      state.exit_code = event.exit_code;
      if (event.step >= 0) state.last_step = event.step;
      if (event.status == RunStatus::kFailed && !absl::c_linear_search(state.failures, event.message)) {
        state.failures.push_back(event.message);
      }
      break;
  }
}

absl::StatusOr<RunState> ReplayJournal(absl::string_view text, absl::string_view path) {
  TRAINCTL_ASSIGN_OR_RETURN(JournalText journal, ParseJournal(text, path));
  RunState state;
  for (const JournalEvent& event : journal.events) ApplyEvent(event, state);
  state.damage = std::move(journal.damage);
  return state;
}

bool IsRubbish(absl::string_view text) {
  bool has_lines = false;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    has_lines = true;
    const absl::StatusOr<Json> json = ParseJson(line, "");
    if (!json.ok()) continue;
    const absl::StatusOr<int64_t> version = JsonInt(*json, "v", "");
    if ((version.ok() && *version > kVersion) || ParseEvent(*json, "").ok()) return false;
  }
  return has_lines;
}

}  // namespace trainctl::run
