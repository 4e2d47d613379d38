#include "monitor/metrics_export.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/files.h"

namespace trainctl::monitor {

struct MetricsExport::Shared {
  void Run() {
    telemetry::LogFollower follower(metrics_path, timings_path);
    bool is_last = false;
    while (!is_last) {
      {
        std::unique_lock lock(mutex);
        changed.wait_for(lock, absl::ToChronoMilliseconds(interval), [&] { return closing; });
        is_last = closing;
      }
      const bool has_new_lines = follower.Update();
      std::unique_lock lock(mutex);
      if (has_new_lines) run.numbers = follower.numbers();
      has_news |= has_new_lines;
      if (file.empty() || !has_news) continue;
      has_news = false;
      const std::string text = FormatMetrics(FamiliesOf(run), MetricFormat::kPrometheus);
      lock.unlock();
      const absl::Status written = WriteFileAtomic(file, text);
      lock.lock();
      NoteWritten(written);
    }
    std::lock_guard lock(mutex);
    is_done = true;
    changed.notify_all();
  }

  // Call with the mutex held.
  void NoteWritten(const absl::Status& written) {
    if (std::exchange(has_trouble, !written.ok()) == !written.ok()) return;
    messages.push_back(written.ok() ? absl::StrCat("metrics.prometheus: ", file, " is being written again")
                                    : absl::StrCat("warning: metrics.prometheus: ", written.message(),
                                                   "; the run continues, and this is tried again"));
  }

  std::string metrics_path, timings_path, file;
  absl::Duration interval;

  std::mutex mutex;
  std::condition_variable changed;
  // The members below are guarded by `mutex`.
  RunMetrics run;
  bool has_news = true;
  bool has_trouble = false;
  bool closing = false;
  bool is_done = false;
  std::vector<std::string> messages;
};

MetricsExport::MetricsExport(Options options)
    : shared_(std::make_shared<Shared>()), server_(std::move(options.server)) {
  shared_->metrics_path = std::move(options.metrics_path);
  shared_->timings_path = std::move(options.timings_path);
  shared_->file = std::move(options.file);
  shared_->interval = options.interval;
  shared_->run = std::move(options.run);
  std::thread([shared = shared_] { shared->Run(); }).detach();
  if (server_ == nullptr) return;
  server_->Serve([shared = shared_] {
    std::lock_guard lock(shared->mutex);
    return FamiliesOf(shared->run);
  });
}

MetricsExport::~MetricsExport() { Finish(absl::ZeroDuration()); }

void MetricsExport::OnEvent(const run::JournalEvent& event) {
  std::lock_guard lock(shared_->mutex);
  run::ApplyEvent(event, shared_->run.state);
  // Restarted workers may have other ranks and other peaks.
  if (event.kind == run::EventKind::kGeneration) shared_->run.peak_bytes.clear();
  shared_->has_news = true;
}

void MetricsExport::OnProgress(const launcher::JobProgress& progress) {
  if (progress.progress.peak_bytes < 0) return;
  std::lock_guard lock(shared_->mutex);
  int64_t& peak_bytes = shared_->run.peak_bytes[progress.rank];
  if (peak_bytes != progress.progress.peak_bytes) shared_->has_news = true;
  peak_bytes = progress.progress.peak_bytes;
}

std::vector<std::string> MetricsExport::TakeMessages() {
  std::lock_guard lock(shared_->mutex);
  return std::exchange(shared_->messages, {});
}

void MetricsExport::Finish(absl::Duration patience) {
  std::unique_lock lock(shared_->mutex);
  shared_->closing = true;
  shared_->changed.notify_all();
  shared_->changed.wait_for(lock, absl::ToChronoMilliseconds(patience), [&] { return shared_->is_done; });
}

}  // namespace trainctl::monitor
