// What is told of a failure when the launcher can write nothing any more: no journal, no logs.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>

#include <fstream>

#include "tests/unit/launcher/job_fixture.h"

namespace trainctl::launcher {
namespace {

using testing::HasSubstr;
using Kind = JobOutcome::Kind;

// When a worker says so, no file of this process may grow beyond the size that the journal has then; workers
// that run already are not concerned. Then the file `go` is there.
class FillingObserver : public RecordingObserver {
 public:
  FillingObserver(std::string journal, std::string go) : journal_(std::move(journal)), go_(std::move(go)) {
    ::signal(SIGXFSZ, SIG_IGN);
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &before_), 0);
  }
  ~FillingObserver() override { EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &before_), 0); }

  void OnWorkerLine(const WorkerLine& line) override {
    RecordingObserver::OnWorkerLine(line);
    if (line.text.substr(0, 8) != "fill it ") return;
    // Longer than what the launcher keeps in memory as files: only the disk shall be full.
    std::ofstream(journal_, std::ios::app) << std::string(8192, '\n');
    const rlimit limit = {static_cast<rlim_t>(*FileBytes(journal_)), before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
    EXPECT_TRUE(WriteFileAtomic(go_, "").ok());
  }

 private:
  const std::string journal_, go_;
  rlimit before_ = {};
};

class FullDiskTest : public JobTest {
 protected:
  FullDiskTest() {
    observer_ = std::make_shared<FillingObserver>(Path("run/journal.jsonl"), Path("go"));
    options_.observer = observer_;
  }
  // Rank 1 fails in its fourth step, once the disk is full. Its log is longer than the journal.
  std::vector<std::string> Script() const {
    return {"*:barrier:a",
            "*:steps:3",
            "1:once+print:fill it " + std::string(12000, 'x'),
            "*:await:" + Path("go"),
            "1:print:last words",
            "1:once+fail:index out of range",
            "*:barrier:b"};
  }
};

TEST_F(FullDiskTest, AFailureIsToldInFull) {
  const auto outcome = Run(Script());
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->exit_code(), ExitCode::kWorkerFailed);
  EXPECT_EQ(outcome->rank, 1);
  EXPECT_EQ(outcome->step, 4);
  EXPECT_EQ(outcome->message,
            "rank 1 failed in step 4: index out of range; not restarted: launch.max_restarts is 0");
  EXPECT_THAT(outcome->log_tail, HasSubstr("last words\nindex out of range\n"));
  EXPECT_EQ(outcome->worker_exit_code, 4);
  EXPECT_THAT(observer_->messages(), HasSubstr("cannot write the journal " + Path("run/journal.jsonl")));
  EXPECT_THAT(observer_->messages(), HasSubstr("its output appears only here"));
  EXPECT_EQ(State().status, run::RunStatus::kRunning) << "the disk was not full";
}

TEST_F(FullDiskTest, TheRestartGoesOn) {
  options_.max_restarts = 1;
  const auto outcome = Run(Script());
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->kind, Kind::kFinished) << outcome->message;
  EXPECT_EQ(outcome->num_restarts, 1);
  EXPECT_EQ(outcome->generation, 2) << "though its line of the journal could not be written";
  EXPECT_THAT(observer_->messages(), HasSubstr("rank 1 failed in step 4: index out of range\n"));
  EXPECT_THAT(observer_->messages(), HasSubstr("  | last words\n"));
  EXPECT_THAT(observer_->messages(), HasSubstr("restarting all workers (1 of 1)"));
  EXPECT_EQ(State().generation, 1);
}

}  // namespace
}  // namespace trainctl::launcher
