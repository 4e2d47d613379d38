#include "apps/trainctl/job_console.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "apps/trainctl/progress_view.h"
#include "telemetry/byte_progress.h"

namespace trainctl::cli {
namespace {

// What a step's line of the first rank says: "step 12/400 loss 2.1 ... 9000 tokens/s mem 27.2 MiB ...".
struct StepLine {
  int64_t step = 0;
  int64_t steps = 0;
  std::string loss, tokens_per_second, mfu, memory;
  bool has_more = false;  // an evaluation: worth a line of its own
};

bool ParseStep(absl::string_view line, StepLine* parsed) {
  const std::vector<std::string> words = absl::StrSplit(line, ' ');
  long long step = 0, steps = 0;
  if (words.size() < 2 || words[0] != "step") return false;
  if (std::sscanf(words[1].c_str(), "%lld/%lld", &step, &steps) != 2 || steps <= 0) return false;
  parsed->step = step;
  parsed->steps = steps;
  for (size_t i = 2; i < words.size(); ++i) {
    if (words[i] == "loss" && i + 1 < words.size()) parsed->loss = words[i + 1];
    if (words[i] == "mfu" && i + 1 < words.size()) parsed->mfu = absl::StrCat("mfu ", words[i + 1], " ");
    if (words[i] == "tokens/s") parsed->tokens_per_second = words[i - 1];
    if (words[i] == "mem" && i + 2 < words.size()) {
      parsed->memory = absl::StrCat(words[i + 1], " ", words[i + 2]);
      parsed->has_more = i + 3 < words.size();
    }
  }
  return true;
}

class TerminalConsole : public launcher::JobObserver {
 public:
  explicit TerminalConsole(bool color) : color_(color) {}
  ~TerminalConsole() override {
    if (!status_.empty()) std::fputs("\n", stderr);
  }

  void OnWorkerLine(int rank, absl::string_view line) override {
    StepLine step;
    const bool is_step = rank == 0 && ParseStep(line, &step);
    if (!is_step || step.has_more) Scroll(absl::StrCat("[rank ", rank, "] ", line));
    if (is_step) ShowStep(step);
  }
  void OnMessage(absl::string_view line) override { Scroll(absl::StrCat("trainctl: ", line)); }

 private:
  void ShowStep(const StepLine& at) {
    const absl::Time now = absl::Now();
    if (first_step_ < 0 || at.step < first_step_) {
      first_step_ = at.step;
      first_time_ = now;
    }
    std::string text =
        absl::StrCat(telemetry::ProgressBar(at.step, at.steps), " ", at.step, "/", at.steps, " loss ",
                     at.loss, " ", at.tokens_per_second, " tok/s ", at.mfu, at.memory);
    if (at.step > first_step_) {
      const absl::Duration each = (now - first_time_) / (at.step - first_step_);
      absl::StrAppend(&text, " ", telemetry::TimeLeft(each * (at.steps - at.step)), " left");
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
