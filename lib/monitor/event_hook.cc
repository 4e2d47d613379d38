#include "monitor/event_hook.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/json.h"
#include "base/run_program.h"
#include "checkpoint/folder_names.h"
#include "launcher/printable_text.h"
#include "telemetry/step_log.h"

namespace trainctl::monitor {
namespace {

constexpr auto kInterruptLook = std::chrono::milliseconds(100);
constexpr size_t kMostMessageBytes = 300;  // limit for the first line of stderr

// Formats a number as metrics.jsonl does.
Json NumberOrNull(const std::optional<double>& value) {
  return value.has_value() ? ParseJson(telemetry::JsonNumber(*value), "").value_or(nullptr) : Json(nullptr);
}

Json LoggedNumbers(const telemetry::RunNumbers& numbers) {
  if (numbers.step < 0) return nullptr;
  Json json = {{"step", numbers.step}, {"loss", NumberOrNull(numbers.loss)}, {"tokens", nullptr}};
  if (numbers.tokens.has_value()) json["tokens"] = *numbers.tokens;
  json["eval"] = Json::object();
  for (const auto& [set, losses] : numbers.evaluation) json["eval"][set] = NumberOrNull(losses.last.loss);
  return json;
}

std::string FirstLine(absl::string_view text) {
  return launcher::PrintableText(text.substr(0, std::min(text.find('\n'), kMostMessageBytes)));
}

}  // namespace

std::string EventLine(const run::JournalEvent& event, const std::string& run_name, const std::string& run_dir,
                      const telemetry::RunNumbers& numbers) {
  Json line = ParseJson(run::EventToJson(event), "an event").value_or(Json::object());
  line["run"] = run_name;
  line["run_dir"] = run_dir;
  const bool is_checkpoint = event.kind == run::EventKind::kCheckpoint;
  if (is_checkpoint)
    line["path"] = absl::StrCat(run_dir, "/checkpoints/", checkpoint::CommittedName(event.step));
  if (is_checkpoint || event.kind == run::EventKind::kEnd) line["logged"] = LoggedNumbers(numbers);
  return FormatJson(line);
}

struct EventHook::Shared {
  void Run() {
    telemetry::LogFollower follower(options.metrics_path, options.timings_path);
    while (true) {
      run::JournalEvent event;
      absl::Duration patience = options.patience;
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return closing || !waiting.empty(); });
        if (waiting.empty()) break;
        if (closing) patience = std::min(patience, ShareOfNext());
        event = std::move(waiting.front());
        waiting.pop_front();
        if (patience <= absl::ZeroDuration()) {
          ++num_left_out;
          continue;
        }
      }
      follower.Update();
      const std::string line = EventLine(event, options.run_name, options.run_dir, follower.numbers());
      const absl::StatusOr<ProgramEnd> end = RunHandler(options.command, absl::StrCat(line, "\n"), patience);
      NoteEnd(line, patience, end);
    }
    std::lock_guard lock(mutex);
    is_done = true;
    changed.notify_all();
  }

  // The next event's share of the time until `deadline`. The last event, the end of the run, gets at least
  // half a patience, however slow the others are.
  absl::Duration ShareOfNext() const {
    const absl::Duration left = deadline - absl::Now();
    if (waiting.size() == 1) return left;
    return (left - options.patience / 2) / static_cast<int64_t>(waiting.size() - 1);
  }

  void NoteEnd(const std::string& line, absl::Duration patience, const absl::StatusOr<ProgramEnd>& end) {
    if (end.ok() && !end->is_late && end->exit.Success()) return;
    const Json event = ParseJson(line, "an event").value_or(Json::object());
    std::string text = absl::StrCat("warning: launch.on_event: ", options.command[0], " for the event ",
                                    event.value("event", ""), ": ");
    if (!end.ok()) {
      absl::StrAppend(&text, end.status().message());
    } else if (end->is_late) {
      absl::StrAppend(&text, "did not end within ",
                      absl::FormatDuration(absl::Trunc(patience, absl::Milliseconds(1))), " and was killed");
    } else {
      absl::StrAppend(&text, end->exit.Describe());
    }
    if (end.ok() && !end->output.empty()) absl::StrAppend(&text, ": ", FirstLine(end->output));
    std::lock_guard lock(mutex);
    messages.push_back(std::move(text));
  }

  Options options;
  std::mutex mutex;
  std::condition_variable changed;
  // The members below are guarded by `mutex`.
  std::deque<run::JournalEvent> waiting;
  int64_t num_left_out = 0;
  bool closing = false;
  absl::Time deadline = absl::InfiniteFuture();  // for the waiting events, once closing
  bool is_done = false;
  std::vector<std::string> messages;
};

EventHook::EventHook(Options options) : shared_(std::make_shared<Shared>()) {
  shared_->options = std::move(options);
  std::thread([shared = shared_] { shared->Run(); }).detach();
}

EventHook::~EventHook() {
  std::lock_guard lock(shared_->mutex);
  shared_->closing = true;
  shared_->waiting.clear();
  shared_->changed.notify_all();
}

void EventHook::OnEvent(const run::JournalEvent& event) {
  std::lock_guard lock(shared_->mutex);
  if (shared_->waiting.size() >= kMaxWaiting) {
    shared_->waiting.pop_front();
    ++shared_->num_left_out;
  }
  shared_->waiting.push_back(event);
  shared_->changed.notify_all();
}

std::vector<std::string> EventHook::TakeMessages() {
  std::lock_guard lock(shared_->mutex);
  return std::exchange(shared_->messages, {});
}

void EventHook::Finish(const std::function<bool()>& is_interrupted) {
  std::unique_lock lock(shared_->mutex);
  const absl::Duration patience = 2 * shared_->options.patience;
  shared_->closing = true;
  shared_->deadline = absl::Now() + patience;
  shared_->changed.notify_all();
  while (!shared_->is_done && absl::Now() < shared_->deadline) {
    shared_->changed.wait_for(lock, kInterruptLook);
    if (is_interrupted != nullptr && is_interrupted()) break;
  }
  shared_->num_left_out += static_cast<int64_t>(std::exchange(shared_->waiting, {}).size());
  if (shared_->num_left_out == 0) return;
  shared_->messages.push_back(absl::StrCat("warning: launch.on_event: ", shared_->options.command[0],
                                           " was too slow; events left out: ", shared_->num_left_out));
}

}  // namespace trainctl::monitor
