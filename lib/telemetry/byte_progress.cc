#include "telemetry/byte_progress.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/units.h"

namespace trainctl::telemetry {
namespace {

constexpr int64_t kBarCells = 16;
constexpr absl::Duration kRedrawEvery = absl::Milliseconds(100);
constexpr absl::Duration kFirstLine = absl::Seconds(5);
constexpr absl::Duration kRarestLine = absl::Minutes(5);

double Share(int64_t done, int64_t total) {
  return std::clamp(static_cast<double>(done) / static_cast<double>(std::max<int64_t>(total, 1)), 0.0, 1.0);
}

}  // namespace

std::string ProgressBar(int64_t done, int64_t total) {
  const auto filled = static_cast<size_t>(Share(done, total) * static_cast<double>(kBarCells));
  return absl::StrCat("[", std::string(filled, '#'), std::string(kBarCells - filled, '.'), "]");
}

std::string TimeLeft(absl::Duration left) {
  const int64_t seconds = absl::ToInt64Seconds(left);
  if (seconds < 3600) return absl::StrFormat("%d:%02d", seconds / 60, seconds % 60);
  return absl::StrFormat("%d:%02d:%02d", seconds / 3600, seconds / 60 % 60, seconds % 60);
}

std::string ByteProgress::Update(int64_t done_bytes, int64_t total_bytes) {
  const absl::Duration now = clock_.Monotonic();
  if (!has_begun_) {
    has_begun_ = true;
    first_bytes_ = done_bytes;
    first_time_ = now;
    interval_ = terminal_ ? kRedrawEvery : kFirstLine;
    next_time_ = now + interval_;
    return "";
  }
  if (now < next_time_) return "";
  if (!terminal_) interval_ = std::min(2 * interval_, kRarestLine);
  next_time_ = now + interval_;
  const double seconds = absl::ToDoubleSeconds(now - first_time_);
  const double bytes_per_second = static_cast<double>(done_bytes - first_bytes_) / seconds;
  const std::string rate = absl::StrFormat("%.1f MB/s", bytes_per_second / 1e6);
  if (total_bytes == 0) return absl::StrCat(FormatBytes(done_bytes), " ", rate);
  const std::string amounts =
      absl::StrCat(FormatBytes(done_bytes), " of ", FormatBytes(total_bytes), " ", rate);
  std::string left;
  if (bytes_per_second > 0) {
    const double remaining = static_cast<double>(std::max<int64_t>(total_bytes - done_bytes, 0));
    left = absl::StrCat(" ", TimeLeft(absl::Seconds(remaining / bytes_per_second)), " left");
  }
  if (terminal_) return absl::StrCat(ProgressBar(done_bytes, total_bytes), " ", amounts, left);
  return absl::StrCat(absl::StrFormat("%d %%, ", static_cast<int>(100 * Share(done_bytes, total_bytes))),
                      amounts, left);
}

}  // namespace trainctl::telemetry
