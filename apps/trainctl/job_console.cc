#include "apps/trainctl/job_console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"

namespace trainctl::cli {
namespace {

constexpr int kBarCells = 24;

int TerminalColumns() {
  winsize size = {};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// "step 12/400 loss ..." of the first rank.
bool ParseStep(absl::string_view line, int64_t* step, int64_t* steps) {
  long long done = 0, all = 0;
  if (std::sscanf(std::string(line).c_str(), "step %lld/%lld ", &done, &all) != 2 || all <= 0) return false;
  *step = done;
  *steps = all;
  return true;
}

class TerminalConsole : public launcher::JobObserver {
 public:
  explicit TerminalConsole(bool color) : color_(color) {}
  ~TerminalConsole() override {
    if (!status_.empty()) std::fputs("\n", stderr);
  }

  void OnWorkerLine(int rank, absl::string_view line) override {
    int64_t step = 0, steps = 0;
    if (rank == 0 && ParseStep(line, &step, &steps)) return ShowStep(line, step, steps);
    Scroll(absl::StrCat("[rank ", rank, "] ", line));
  }
  void OnMessage(absl::string_view line) override { Scroll(absl::StrCat("trainctl: ", line)); }

 private:
  void ShowStep(absl::string_view line, int64_t step, int64_t steps) {
    const absl::Time now = absl::Now();
    if (first_step_ < 0 || step < first_step_) {
      first_step_ = step;
      first_time_ = now;
    }
    const int filled = static_cast<int>(kBarCells * step / steps);
    std::string text = absl::StrCat("[", std::string(static_cast<size_t>(filled), '#'),
                                    std::string(static_cast<size_t>(kBarCells - filled), '.'), "] ", line);
    if (step > first_step_) {
      const absl::Duration each = (now - first_time_) / (step - first_step_);
      const int64_t left = absl::ToInt64Seconds(each * (steps - step));
      absl::StrAppendFormat(&text, ", %d:%02d left", left / 60, left % 60);
    }
    text.resize(std::min(text.size(), static_cast<size_t>(TerminalColumns() - 1)));
    status_ = text;
    Draw();
  }

  void Scroll(const std::string& line) {
    std::fprintf(stderr, "\r\x1b[K%s\n", line.c_str());
    Draw();
  }

  void Draw() {
    if (status_.empty()) return;
    std::fprintf(stderr, "\r\x1b[K%s%s%s", color_ ? "\x1b[36m" : "", status_.c_str(),
                 color_ ? "\x1b[0m" : "");
    std::fflush(stderr);
  }

  const bool color_;
  std::string status_;
  int64_t first_step_ = -1;
  absl::Time first_time_;
};

}  // namespace

std::shared_ptr<launcher::JobObserver> MakeJobConsole(bool terminal) {
  if (!terminal) return std::make_shared<launcher::FdObserver>(STDERR_FILENO);
  return std::make_shared<TerminalConsole>(std::getenv("NO_COLOR") == nullptr);
}

}  // namespace trainctl::cli
