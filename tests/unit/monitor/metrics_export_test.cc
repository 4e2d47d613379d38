// The file and the port follow a run's logs and events.
#include "monitor/metrics_export.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/files.h"

namespace trainctl::monitor {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class MetricsExportTest : public testing::Test {
 protected:
  // A folder for each test: the thread of an export that was not finished may still write its last file.
  MetricsExportTest()
      : folder_(absl::StrCat(testing::TempDir(), "/metrics_export_", ::getpid(), "_",
                             testing::UnitTest::GetInstance()->current_test_info()->name())) {
    EXPECT_TRUE(MakeDirs(folder_).ok());
  }
  ~MetricsExportTest() override { (void)RemoveAll(folder_); }

  MetricsExport::Options Options() const {
    MetricsExport::Options options = {.metrics_path = folder_ + "/metrics.jsonl",
                                      .timings_path = folder_ + "/timings.jsonl",
                                      .file = folder_ + "/run.prom"};
    options.run = {.run_name = "r", .run_dir = folder_, .total_steps = 40, .predicted_peak_bytes = 1 << 20};
    options.run.state.last_checkpoint_step = 10;
    options.run.state.last_checkpoint = absl::UnixEpoch() + absl::Seconds(900);
    return options;
  }
  static run::JournalEvent Event(run::EventKind kind, int64_t seconds) {
    run::JournalEvent event{kind};
    event.time = absl::UnixEpoch() + absl::Seconds(seconds);
    return event;
  }
  void Append(const std::string& name, const std::string& line) const {
    EXPECT_TRUE(AppendFile(absl::StrCat(folder_, "/", name), line + "\n").ok());
  }
  std::string File() const { return ReadFile(folder_ + "/run.prom").value_or(""); }
  // Waits until the file contains the text, at most 30 seconds. Returns the file's contents either way.
  std::string WaitFor(const std::string& text) const {
    std::string file;
    for (const absl::Time deadline = absl::Now() + absl::Seconds(30); absl::Now() < deadline;
         absl::SleepFor(absl::Milliseconds(5))) {
      file = File();
      if (absl::StrContains(file, text)) break;
    }
    return file;
  }

  const std::string folder_;
};

TEST_F(MetricsExportTest, TheFileHasWhatTheRunHasSoFar) {
  MetricsExport::Options options = Options();
  options.interval = absl::Milliseconds(1);
  MetricsExport metrics(std::move(options));
  metrics.OnEvent(Event(run::EventKind::kLaunch, 1000));
  EXPECT_THAT(WaitFor("trainctl_start_time_seconds{"),
              AllOf(HasSubstr("trainctl_start_time_seconds{run=\"r\"} 1000\n"),
                    HasSubstr("trainctl_state{run=\"r\",trainctl_state=\"running\"} 1\n"),
                    HasSubstr("trainctl_steps_target{run=\"r\"} 40\n"),
                    HasSubstr("trainctl_memory_peak_predicted_bytes{run=\"r\"} 1048576\n"),
                    HasSubstr("trainctl_last_checkpoint_step{run=\"r\"} 10\n"),
                    HasSubstr("trainctl_last_checkpoint_time_seconds{run=\"r\"} 900\n"),
                    HasSubstr("trainctl_restarts_total{run=\"r\"} 0\n"), Not(HasSubstr("trainctl_loss"))));
  Append(
      "metrics.jsonl",
      "{\"step\":11,\"loss\":2.5,\"grad_norm\":1.25,\"lr\":3e-04,\"tokens\":4096,\"eval\":{\"a b\":2.25}}");
  Append("timings.jsonl",
         "{\"step\":11,\"seconds\":0.5,\"tokens_per_second\":9000,\"mfu\":0.41,\"memory_bytes\":{\"tensor_"
         "peak\":77},\"time\":1700000000.125}");
  EXPECT_THAT(WaitFor("trainctl_mfu_ratio"),
              AllOf(HasSubstr("trainctl_step{run=\"r\"} 11\n"), HasSubstr("trainctl_loss{run=\"r\"} 2.5\n"),
                    HasSubstr("trainctl_gradient_norm{run=\"r\"} 1.25\n"),
                    HasSubstr("trainctl_learning_rate{run=\"r\"} 3e-04\n"),
                    HasSubstr("trainctl_tokens_total{run=\"r\"} 4096\n"),
                    HasSubstr("trainctl_evaluation_loss{run=\"r\",set=\"a b\"} 2.25\n"),
                    HasSubstr("trainctl_tokens_per_second{run=\"r\"} 9000\n"),
                    HasSubstr("trainctl_mfu_ratio{run=\"r\"} 0.41\n"),
                    HasSubstr("trainctl_memory_peak_bytes{run=\"r\",rank=\"0\"} 77\n")));
  metrics.OnProgress({.rank = 1, .progress = {.peak_bytes = 66}});
  run::JournalEvent checkpoint = Event(run::EventKind::kCheckpoint, 1100);
  checkpoint.step = 11;
  metrics.OnEvent(checkpoint);
  metrics.OnEvent(Event(run::EventKind::kRestart, 1200));
  EXPECT_THAT(WaitFor("trainctl_restarts_total{run=\"r\"} 1\n"),
              AllOf(HasSubstr("trainctl_memory_peak_bytes{run=\"r\",rank=\"1\"} 66\n"),
                    HasSubstr("trainctl_last_checkpoint_step{run=\"r\"} 11\n"),
                    HasSubstr("trainctl_last_checkpoint_time_seconds{run=\"r\"} 1100\n")));
}

TEST_F(MetricsExportTest, TheLastWriteHasTheEnd) {
  MetricsExport::Options options = Options();
  options.interval = absl::Hours(1);
  MetricsExport metrics(std::move(options));
  Append("metrics.jsonl", "{\"step\":40,\"loss\":null,\"tokens\":9}");
  run::JournalEvent end = Event(run::EventKind::kEnd, 1300);
  end.status = run::RunStatus::kFinished;
  metrics.OnEvent(end);
  metrics.Finish(absl::Minutes(1));
  EXPECT_THAT(File(), AllOf(HasSubstr("trainctl_step{run=\"r\"} 40\n"), Not(HasSubstr("trainctl_loss{")),
                            HasSubstr("trainctl_state{run=\"r\",trainctl_state=\"finished\"} 1\n"),
                            HasSubstr("trainctl_state{run=\"r\",trainctl_state=\"running\"} 0\n")));
  EXPECT_THAT(metrics.TakeMessages(), ElementsAre());
}

TEST_F(MetricsExportTest, AFileThatCannotBeWrittenIsAWarning) {
  MetricsExport::Options options = Options();
  options.file = folder_ + "/absent/run.prom";
  MetricsExport metrics(std::move(options));
  metrics.Finish(absl::Minutes(1));
  EXPECT_THAT(metrics.TakeMessages(),
              ElementsAre(AllOf(HasSubstr("warning: metrics.prometheus: "), HasSubstr("absent/run.prom"))));
}

}  // namespace
}  // namespace trainctl::monitor
