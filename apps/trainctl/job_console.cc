#include "apps/trainctl/job_console.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "apps/trainctl/progress_view.h"
#include "apps/trainctl/run_activity.h"
#include "telemetry/byte_progress.h"
#include "telemetry/step_pace.h"

namespace trainctl::cli {
namespace {

// What a step's line of the first rank says: "step 12/400 loss 2.1 ... 9000 tokens/s mem 27.2 MiB ...".
struct StepLine {
  int64_t steps = 0;
  std::string loss, memory;
  telemetry::DoneStep done;
  bool has_more = false;  // an evaluation: worth a line of its own
};

bool ParseStep(absl::string_view line, StepLine* parsed) {
  const std::vector<std::string> words = absl::StrSplit(line, ' ');
  long long step = 0, steps = 0;
  if (words.size() < 2 || words[0] != "step") return false;
  if (std::sscanf(words[1].c_str(), "%lld/%lld", &step, &steps) != 2 || steps <= 0) return false;
  parsed->done.step = step;
  parsed->steps = steps;
  for (size_t i = 2; i < words.size(); ++i) {
    if (words[i] == "loss" && i + 1 < words.size()) parsed->loss = words[i + 1];
    double number = 0;
    if (words[i] == "mfu" && i + 1 < words.size() &&
        absl::SimpleAtod(absl::StripSuffix(words[i + 1], "%"), &number))
      parsed->done.mfu = number / 100;
    if (words[i] == "tokens/s" && absl::SimpleAtod(words[i - 1], &number))
      parsed->done.tokens_per_second = number;
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

  void OnWorkerLine(const launcher::WorkerLine& line) override {
    StepLine step;
    const bool is_step = line.rank == 0 && ParseStep(line.text, &step);
    if (!is_step || step.has_more) Scroll(absl::StrCat(launcher::PrefixOf(line), line.text));
    if (is_step) ShowStep(step);
  }
  void OnMessage(absl::string_view line) override { Scroll(absl::StrCat("trainctl: ", line)); }
  void OnProgress(const launcher::JobProgress& at) override {
    if (at.rank != 0) return;
    if (at.generation != generation_ && at.progress.step < 0) has_step_ = false;
    generation_ = at.generation;
    if (has_step_) return;  // its lines say more
    Show(ActivityBeforeFirstStep(at.progress.step, at.progress.phase));
  }

 private:
  void ShowStep(StepLine at) {
    at.done.done = absl::Now();
    pace_.Add(at.done);
    has_step_ = true;
    std::string text = absl::StrCat(telemetry::ProgressBar(at.done.step, at.steps), " ", at.done.step, "/",
                                    at.steps, " loss ", at.loss, " ");
    if (const auto speed = pace_.TokensPerSecond()) absl::StrAppendFormat(&text, "%.0f tok/s ", *speed);
    if (const auto mfu = pace_.Mfu()) absl::StrAppendFormat(&text, "mfu %.1f%% ", 100 * *mfu);
    text += at.memory;
    if (const auto left = pace_.TimeLeft(at.steps))
      absl::StrAppend(&text, " ", telemetry::TimeLeft(*left), " left");
    Show(std::move(text));
  }

  void Show(std::string text) {
    text.resize(std::min(text.size(), static_cast<size_t>(TerminalColumns() - 1)));
    status_ = std::move(text);
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
  telemetry::StepPace pace_;
  int64_t generation_ = -1;  // of the last progress
  bool has_step_ = false;    // these workers have done one
};

}  // namespace

std::shared_ptr<launcher::JobObserver> MakeJobConsole(bool terminal) {
  if (!terminal) return std::make_shared<launcher::FdObserver>(STDERR_FILENO);
  return std::make_shared<TerminalConsole>(std::getenv("NO_COLOR") == nullptr);
}

}  // namespace trainctl::cli
