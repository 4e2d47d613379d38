// Whole runs of one rank in this process: what becomes of its checkpoints and its words at the end.

#include "trainer/run_worker.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <future>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/files.h"
#include "base/json.h"
#include "checkpoint/manifest.h"
#include "checkpoint/phase_hook.h"
#include "data/data_record.h"
#include "data/fingerprint.h"
#include "data/indexed_writer.h"
#include "device/device.h"
#include "optim/optimizer.h"
#include "plan/plan.h"
#include "planner/make_plan.h"
#include "recipe/load.h"

namespace trainctl::trainer {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kRecipe[] = R"(recipe_version = 1
[run]
name = "one"
[model]
family = "llama"
layers = 1
hidden = 32
heads = 2
kv_heads = 1
ffn = 32
vocab = 257
[data]
tokenizer = "byte"
seq_len = 16
[[data.train]]
files = ["text.txt"]
[train]
steps = 3
batch_sequences = 2
micro_batch = 2
precision = "fp32"
[optimizer]
warmup_steps = 0
[parallel]
dp_shard = 1
dp_replicate = 1
zero_stage = 0
recompute = "none"
[cluster]
devices_per_node = 1
threads_per_worker = 1
[checkpoint]
async = true
)";

// Each look at it takes a second.
class CountingClock : public Clock {
 public:
  absl::Time Now() const override { return absl::UnixEpoch(); }
  absl::Duration Monotonic() const override {
    std::lock_guard lock(mutex_);
    elapsed_ += absl::Seconds(1);
    return elapsed_;
  }

 private:
  mutable std::mutex mutex_;
  mutable absl::Duration elapsed_;
};

class Control : public ControlChannel {
 public:
  Directive Poll() override {
    if (on_poll) on_poll();
    return directive;
  }
  void Report(const Progress& progress) override {
    if (on_report) on_report(progress);
  }
  void Fail(const Failure& failure) override {
    failures.push_back(failure);
    if (on_fail) on_fail();
  }

  Directive directive;
  std::function<void()> on_poll;
  std::function<void(const Progress&)> on_report;
  std::function<void()> on_fail;
  std::vector<Failure> failures;
};

class RunWorkerTest : public ::testing::Test {
 protected:
  RunWorkerTest() {
    std::string pattern = ::testing::TempDir() + "trainctl-worker-XXXXXX";
    folder_ = mkdtemp(pattern.data());
    std::string text;
    for (int i = 0; i < 200; ++i) absl::StrAppend(&text, "line ", i, " of a text\n");
    EXPECT_TRUE(WriteFileAtomic(folder_ + "/text.txt", text).ok());
  }
  ~RunWorkerTest() override {
    checkpoint::SetPhaseHook({});
    (void)RemoveAll(folder_);
  }

  absl::StatusOr<RunOutcome> Run(std::vector<std::string> sets) {
    TRAINCTL_ASSIGN_OR_RETURN(
        const recipe::LoadedRecipe loaded,
        recipe::LoadRecipeText(kRecipe, folder_ + "/recipe.toml", sets, recipe::RealAccess()));
    cluster::Host host;
    host.memory_total_bytes = host.memory_available_bytes = int64_t{8} << 30;
    TRAINCTL_ASSIGN_OR_RETURN(const plan::Plan plan, planner::MakePlan(loaded.recipe, host));
    WorkerDeps deps;
    deps.recipe = &loaded.recipe;
    deps.plan_json = plan::PlanToJson(plan);
    deps.store = &store_;
    deps.control = &control_;
    deps.clock = &clock_;
    deps.checkpoints_path = folder_ + "/checkpoints";
    deps.metrics_path = folder_ + "/metrics.jsonl";
    deps.timings_path = folder_ + "/timings.jsonl";
    deps.report_path = folder_ + "/report.json";
    deps.profiles_path = folder_ + "/profiles";
    deps.data_record_path = data_record_;
    deps.check_run_folder = check_run_folder_;
    deps.may_begin = may_begin_;
    return RunWorker(deps);
  }
  std::string Checkpoint(int64_t step) const {
    return absl::StrCat(folder_, "/checkpoints/step-", absl::Dec(step, absl::kZeroPad8));
  }
  bool Saved(int64_t step) const { return PathExists(Checkpoint(step)); }
  std::vector<Json> Metrics() const {
    std::vector<Json> lines;
    for (const absl::string_view line :
         absl::StrSplit(*ReadFile(folder_ + "/metrics.jsonl"), '\n', absl::SkipEmpty()))
      lines.push_back(*ParseJson(line, "metrics.jsonl"));
    return lines;
  }
  // The evaluation set `e`. Relative paths of settings would be those of the test's own folder.
  std::string EvaluationOf(const std::string& file, const std::string& fields = "") const {
    return absl::StrCat("data.eval=[{name='e', files=['", folder_, "/", file, "']", fields, "}]");
  }
  // Prompts that fill whole sequences, and nothing after them.
  void WritePrompts() const {
    std::string text;
    for (int i = 0; i < 200; ++i)
      absl::StrAppend(&text, R"({"p":")", std::string(300, static_cast<char>('a' + i % 26)),
                      R"(","text":""})", "\n");
    EXPECT_TRUE(WriteFileAtomic(folder_ + "/p.jsonl", text).ok());
  }

  std::string folder_;
  std::function<absl::Status()> check_run_folder_;
  absl::Status may_begin_;
  InMemoryKeyValueStore store_;
  Control control_;
  CountingClock clock_;
  std::string data_record_;  // file with the fingerprints of the data; may be empty
};

// A first run tells at which step the sums overflow; in the second one the save after the step before is held
// until then.
TEST_F(RunWorkerTest, ALossThatIsNotFiniteLeavesTheSaveUnderWay) {
  const std::vector<std::string> wild = {"optimizer.lr=1000", "optimizer.weight_decay=1", "train.steps=1000"};
  const std::string told(Run(wild).status().message());
  int bad_step = 0;
  ASSERT_EQ(std::sscanf(told.c_str(), "step %d: loss", &bad_step), 1) << told;
  ASSERT_GT(bad_step, 1);
  std::promise<void> reached;
  checkpoint::SetPhaseHook([&](const char* phase) {
    if (std::string(phase) == "saving") reached.get_future().wait();
  });
  control_.on_report = [&](const Progress& progress) {
    if (progress.step == bad_step && progress.phase == "step") reached.set_value();
  };
  std::vector<std::string> sets = wild;
  sets.push_back(absl::StrCat("checkpoint.every_steps=", bad_step - 1));
  const auto outcome = Run(sets);
  EXPECT_EQ(ExitCodeFor(outcome.status()), ExitCode::kCheckFailed) << outcome.status();
  EXPECT_TRUE(Saved(bad_step - 1)) << "the message says that the last checkpoint is good";
}

// With a learning rate far too high, the loss is lowest after the first step.
TEST_F(RunWorkerTest, TheCheckpointWithTheLowestLossIsKept) {
  std::vector<std::string> sets = {
      EvaluationOf("text.txt"),   "train.eval_every=1",      "optimizer.lr=1",
      "checkpoint.every_steps=1", "checkpoint.keep=1",       "checkpoint.keep_best=e",
      "checkpoint.async=true",    "train.on_nonfinite=skip", "train.steps=5"};
  ASSERT_EQ(*Run(sets), RunOutcome::kFinished);
  int64_t best = -1;
  double least = 0;
  const auto look = [&] {
    best = -1;
    for (const Json& line : Metrics()) {
      if (line["step"] == 0 || (best > 0 && line["eval"]["e"] >= least)) continue;
      best = line["step"];
      least = line["eval"]["e"];
    }
  };
  look();
  ASSERT_LT(best, 4) << "the test needs an early best one";
  EXPECT_TRUE(Saved(best) && Saved(5));
  EXPECT_FALSE(Saved(4));
  sets.back() = "train.steps=7";
  ASSERT_EQ(*Run(sets), RunOutcome::kFinished);
  look();
  ASSERT_LT(best, 4);
  EXPECT_TRUE(Saved(best) && Saved(7));
  EXPECT_FALSE(Saved(5));
  EXPECT_FALSE(Run({"checkpoint.keep_best=e"}).ok()) << "there is no such set";
}

TEST_F(RunWorkerTest, WithoutACheckpointAtTheEndTheDueOnesStay) {
  ASSERT_EQ(*Run({"checkpoint.at_end=false", "checkpoint.every_steps=2"}), RunOutcome::kFinished);
  EXPECT_TRUE(Saved(2));
  EXPECT_FALSE(Saved(3));
  EXPECT_TRUE(PathExists(folder_ + "/report.json"));
  // What is done again is done from there, and this time it is kept.
  ASSERT_EQ(*Run({}), RunOutcome::kFinished);
  EXPECT_TRUE(Saved(3));
}

TEST_F(RunWorkerTest, OfAProfiledStepTheOperatorsAreListed) {
  ASSERT_EQ(*Run({"metrics.profile_steps=[2]"}), RunOutcome::kFinished);
  EXPECT_FALSE(PathExists(folder_ + "/profiles/step-1-rank-0.json"));
  const absl::StatusOr<std::string> text = ReadFile(folder_ + "/profiles/step-2-rank-0.json");
  ASSERT_TRUE(text.ok()) << text.status();
  const Json profile = Json::parse(*text);
  int products = 0;
  for (const Json& event : profile.at("traceEvents")) products += event.value("name", "") == "aten::mm";
  EXPECT_GT(products, 0);
}

TEST_F(RunWorkerTest, AStepIsReportedAsLogsCountIt) {
  std::vector<std::string> reported;
  control_.on_report = [&](const Progress& progress) {
    reported.push_back(absl::StrCat(progress.phase, " ", progress.step));
  };
  ASSERT_TRUE(Run({"train.steps=2", "checkpoint.every_steps=1", "checkpoint.async=false"}).ok());
  EXPECT_THAT(reported,
              ::testing::ElementsAre("connect -1", "open data -1", "restore -1", "data 1", "step 1", "data 1",
                                     "step 1", "save 1", "data 2", "step 2", "save 2", "report 2"));
}

// Each look at the clock takes a second.
TEST_F(RunWorkerTest, ALongEvaluationSaysHowFarItIs) {
  ::testing::internal::CaptureStdout();
  const auto outcome = Run({EvaluationOf("text.txt"), "train.eval_every=2"});
  const std::string out = ::testing::internal::GetCapturedStdout();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_THAT(out, HasSubstr("evaluating: 10 of "));
}

// Many batches: the stop is asked for when the evaluation begins, so one that ran to its end would be seen.
TEST_F(RunWorkerTest, AStopDuringAnEvaluationSavesTheStepAndTheResumedRunEvaluates) {
  for (const char* async : {"false", "true"}) {
    for (const int64_t at : {0, 2, 3}) {
      const std::vector<std::string> sets = {EvaluationOf("text.txt"), "train.eval_every=2",
                                             absl::StrCat("checkpoint.async=", async)};
      ASSERT_TRUE(RemoveAll(folder_ + "/checkpoints").ok());
      ASSERT_EQ(*Run(sets), RunOutcome::kFinished);
      const std::string undisturbed = *ReadFile(folder_ + "/metrics.jsonl");
      const std::string weights = *ReadFile(Checkpoint(3) + "/rank-00000.safetensors");
      ASSERT_TRUE(RemoveAll(folder_ + "/checkpoints").ok());
      control_.on_report = [&](const Progress& progress) {
        if (progress.phase == "evaluate" && progress.step == (at > 0 ? at : -1))
          control_.directive.kind = DirectiveKind::kStopAfterSave;
      };
      ASSERT_EQ(*Run(sets), RunOutcome::kStoppedOnRequest) << at;
      control_.directive = {};
      control_.on_report = {};
      EXPECT_FALSE(Saved(at + 1));
      if (at == 0) {
        EXPECT_EQ(*ReadFile(folder_ + "/metrics.jsonl"), "");
      } else {
        EXPECT_TRUE(Saved(at));
        const Json last = Metrics().back();
        EXPECT_EQ(last["step"], at);
        EXPECT_FALSE(last.contains("eval")) << last;
      }
      ASSERT_EQ(*Run(sets), RunOutcome::kFinished);
      EXPECT_EQ(*ReadFile(folder_ + "/metrics.jsonl"), undisturbed);
      EXPECT_TRUE(*ReadFile(Checkpoint(3) + "/rank-00000.safetensors") == weights);
    }
  }
}

TEST_F(RunWorkerTest, ARunThatFailsInAnEvaluationHasSavedItsStep) {
  const std::vector<std::string> sets = {EvaluationOf("text.txt"), "train.eval_every=2",
                                         "checkpoint.every_steps=2", "checkpoint.async=false"};
  ASSERT_TRUE(Run(sets).ok());
  const std::string undisturbed = *ReadFile(folder_ + "/metrics.jsonl");
  for (const int64_t at : {2, 3}) {
    ASSERT_TRUE(RemoveAll(folder_ + "/checkpoints").ok());
    control_.on_report = [&](const Progress& progress) {
      if (progress.phase == "evaluate" && progress.step == at) throw std::runtime_error("out of luck");
    };
    EXPECT_FALSE(Run(sets).ok());
    EXPECT_TRUE(Saved(at));
    EXPECT_EQ(Metrics().back()["step"], at - 1);
    control_.on_report = {};
    ASSERT_TRUE(Run(sets).ok());
    EXPECT_EQ(*ReadFile(folder_ + "/metrics.jsonl"), undisturbed);
  }
  // What is complete is not evaluated again.
  std::vector<std::string> phases;
  control_.on_report = [&](const Progress& progress) { phases.push_back(progress.phase); };
  ASSERT_TRUE(Run(sets).ok());
  EXPECT_THAT(phases, Not(::testing::Contains("evaluate")));
}

// No save is due. The file changes between two batches of the evaluation after step 2, with and without a new
// stamp.
TEST_F(RunWorkerTest, DataThatCannotBeReadInAnEvaluationEndsTheRunAfterASave) {
  const std::string path = folder_ + "/e.bin";
  auto writer = data::IndexedWriter::Create(folder_ + "/e", data::TokenType::kU16);
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE((*writer)->Append(std::vector<int32_t>(1000, 7)).ok());
  (*writer)->EndDocument();
  ASSERT_TRUE((*writer)->Finish().ok());
  const std::string good = *ReadFile(path);
  struct stat stamp;
  ASSERT_EQ(::stat(path.c_str(), &stamp), 0);
  const struct timespec times[2] = {stamp.st_atim, stamp.st_mtim};
  const auto write_tokens = [&](const std::string& bytes, bool keeps_stamp) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    EXPECT_EQ(::pwrite(fd, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    if (keeps_stamp) {
      EXPECT_EQ(::futimens(fd, times), 0);
    }
    ::close(fd);
  };
  const std::vector<std::string> sets = {EvaluationOf("e.bin"), "train.eval_every=2", "train.eval_batches=9",
                                         "train.steps=4"};
  ASSERT_TRUE(Run(sets).ok());
  const std::string undisturbed = *ReadFile(folder_ + "/metrics.jsonl");
  for (const char* async : {"false", "true"}) {
    for (const bool keeps_stamp : {true, false}) {
      ASSERT_TRUE(RemoveAll(folder_ + "/checkpoints").ok());
      bool evaluates = false;
      control_.on_report = [&](const Progress& progress) {
        evaluates = progress.phase == "evaluate" && progress.step == 2;
      };
      control_.on_poll = [&] {
        if (evaluates) write_tokens(std::string(good.size(), '\xff'), keeps_stamp);
      };
      std::vector<std::string> all = sets;
      all.push_back(absl::StrCat("checkpoint.async=", async));
      const absl::Status status = Run(all).status();
      EXPECT_EQ(ExitCodeFor(status), ExitCode::kBadData) << status;
      EXPECT_THAT(std::string(status.message()),
                  keeps_stamp ? AllOf(HasSubstr("token 65535 is outside the vocabulary of 257"),
                                      HasSubstr("the last checkpoint, at step 2, is valid"))
                              : AllOf(HasSubstr("e.bin changed while the run was reading it"),
                                      HasSubstr("step 2 is saved")));
      EXPECT_TRUE(Saved(2));
      control_.on_poll = {};
      control_.on_report = {};
      write_tokens(good, /*keeps_stamp=*/true);
      ASSERT_TRUE(Run(all).ok());
      EXPECT_EQ(*ReadFile(folder_ + "/metrics.jsonl"), undisturbed);
    }
  }
}

// Bytes without an end of text: nothing but prompts.
TEST_F(RunWorkerTest, AStepWithoutACountedTargetChangesNoWeightAndHasNoLoss) {
  WritePrompts();
  const std::vector<std::string> sets = {"model.vocab=256",
                                         "data.packing=documents",
                                         absl::StrCat("data.train=[{name='p', files=['", folder_,
                                                      "/p.jsonl'], kind='jsonl', prompt_field='p'}]"),
                                         EvaluationOf("p.jsonl", ", kind='jsonl', prompt_field='p'"),
                                         "train.eval_batches=1",
                                         "optimizer.weight_decay=0.5",
                                         "checkpoint.every_steps=1"};
  ::testing::internal::CaptureStdout();
  const auto outcome = Run(sets);
  const std::string out = ::testing::internal::GetCapturedStdout();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_THAT(out, AllOf(HasSubstr("warning: step 1: none of the targets in this step's batch count toward "
                                   "the loss: the data has no completions, or prompts fill data.seq_len"),
                         HasSubstr("evaluation set 'e' has no loss, because none of its targets count"),
                         HasSubstr("3 of 3 steps made no update")));
  EXPECT_TRUE(*ReadFile(Checkpoint(1) + "/rank-00000.safetensors") ==
              *ReadFile(Checkpoint(3) + "/rank-00000.safetensors"));
  const std::vector<Json> lines = Metrics();
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_TRUE(lines.front()["eval"]["e"].is_null()) << lines.front();
  for (const char* name : {"loss", "grad_norm", "lr"}) EXPECT_TRUE(lines.front()[name].is_null()) << name;
  EXPECT_TRUE(lines.back()["loss"].is_null() && lines.back()["eval"]["e"].is_null()) << lines.back();
  EXPECT_FALSE(lines.back().contains("skipped"));

  std::vector<std::string> longer = sets;
  longer.emplace_back("train.steps=100");
  ASSERT_TRUE(RemoveAll(folder_ + "/checkpoints").ok());
  const absl::Status status = Run(longer).status();
  EXPECT_EQ(ExitCodeFor(status), ExitCode::kBadData) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("10 consecutive steps (1 to 10)"), HasSubstr("prompts fill data.seq_len")));
  EXPECT_EQ(Metrics().back()["step"], 10);
}

TEST_F(RunWorkerTest, UpdatesThatAreSkippedAreCountedAndTenInARowEndTheRun) {
  std::vector<std::string> wild = {"optimizer.lr=1000", "optimizer.weight_decay=1", "train.steps=1000",
                                   "optimizer.lr_schedule=constant"};
  const std::string told(Run(wild).status().message());
  int first_bad = 0;
  ASSERT_EQ(std::sscanf(told.c_str(), "step %d: loss", &first_bad), 1) << told;
  wild.emplace_back("train.on_nonfinite=skip");
  const auto run = [&](int64_t steps, absl::Status* status) {
    wild[2] = absl::StrCat("train.steps=", steps);
    ::testing::internal::CaptureStdout();
    *status = Run(wild).status();
    return ::testing::internal::GetCapturedStdout();
  };
  ASSERT_TRUE(RemoveAll(folder_ + "/checkpoints").ok());
  absl::Status status;
  std::string out = run(first_bad + 3, &status);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(out, HasSubstr(absl::StrCat("4 of ", first_bad + 3,
                                          " updates were skipped because their gradients "
                                          "were not finite")));
  const std::vector<Json> lines = Metrics();
  EXPECT_EQ(
      std::count_if(lines.begin(), lines.end(), [](const Json& line) { return line.contains("skipped"); }),
      4);
  EXPECT_EQ(lines.back()["skipped"], true);
  EXPECT_EQ(lines.back()["skipped_steps"], 4);
  // A resume counts those in a row from 0, and those of the whole run on.
  out = run(first_bad + 11, &status);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(out, HasSubstr(absl::StrCat("12 of ", first_bad + 11, " updates were skipped")));
  run(1000, &status);
  EXPECT_EQ(ExitCodeFor(status), ExitCode::kCheckFailed) << status;
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr(
                absl::StrCat("10 consecutive updates were skipped (22 of ", first_bad + 21, " in total)")),
            HasSubstr("so the weights are probably no longer usable, although all of them are finite"),
            HasSubstr("has the same weights")));
  EXPECT_EQ(Metrics().back()["step"], first_bad + 21);
  EXPECT_EQ(Metrics().back()["skipped"], true);
  EXPECT_EQ(Metrics().back()["skipped_steps"], 22);
  EXPECT_FALSE(Saved(first_bad + 21));
}

TEST_F(RunWorkerTest, ALogThatIsMovedAwayDoesNotEndTheRun) {
  bool is_moved = false;
  control_.on_report = [&](const Progress& progress) {
    if (progress.step != 2 || progress.phase != "step" || std::exchange(is_moved, true)) return;
    EXPECT_EQ(::rename((folder_ + "/metrics.jsonl").c_str(), (folder_ + "/metrics.1.jsonl").c_str()), 0);
  };
  const auto outcome = Run({"checkpoint.every_steps=2"});
  EXPECT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_TRUE(Saved(2));
  EXPECT_TRUE(Saved(3));
}

TEST_F(RunWorkerTest, AFolderThatIsAnotherOneIsWrittenNoMore) {
  std::atomic<bool> gone = false;
  check_run_folder_ = [&] { return gone ? EnvironmentError("the run folder is gone") : absl::OkStatus(); };
  control_.on_report = [&](const Progress& progress) { gone = progress.step >= 2; };
  for (const bool async : {false, true}) {
    ASSERT_TRUE(RemoveAll(folder_ + "/checkpoints").ok());
    gone = false;
    const auto outcome = Run({"checkpoint.every_steps=1", "train.steps=9",
                              absl::StrCat("checkpoint.async=", async ? "true" : "false")});
    EXPECT_EQ(ExitCodeFor(outcome.status()), ExitCode::kEnvironment) << outcome.status();
    EXPECT_FALSE(Saved(3));
    EXPECT_THAT(*ReadFile(folder_ + "/metrics.jsonl"), Not(HasSubstr("\"step\":3")));
  }
}

TEST_F(RunWorkerTest, ARunThatHadACheckpointDoesNotBeginAnew) {
  ASSERT_TRUE(Run({}).ok());
  const std::string metrics = *ReadFile(folder_ + "/metrics.jsonl");
  may_begin_ = BadDataError("a checkpoint was recorded");
  ASSERT_TRUE(RemoveAll(folder_ + "/checkpoints").ok());
  const auto outcome = Run({"train.steps=5"});
  EXPECT_EQ(ExitCodeFor(outcome.status()), ExitCode::kBadData) << outcome.status();
  ASSERT_EQ(control_.failures.size(), 1u) << "the launcher gets the cause, not only an exit code";
  EXPECT_THAT(control_.failures[0].message, HasSubstr("a checkpoint was recorded"));
  EXPECT_EQ(control_.failures[0].exit_code, static_cast<int>(ExitCode::kBadData));
  EXPECT_EQ(*ReadFile(folder_ + "/metrics.jsonl"), metrics);
  ASSERT_TRUE(MakeDirs(Checkpoint(2)).ok());
  EXPECT_THAT(std::string(Run({"train.steps=5"}).status().message()), HasSubstr("--from-scratch"));
}

// Of this trainctl nothing is said; of one that did not count its versions yet, what has changed since.
TEST_F(RunWorkerTest, ACheckpointOfAnEarlierTrainctlSaysSoWhenTheRunGoesOn) {
  ASSERT_TRUE(Run({}).ok());
  const auto resume = [&](int64_t steps) {
    ::testing::internal::CaptureStdout();
    const absl::Status status = Run({absl::StrCat("train.steps=", steps)}).status();
    const std::string out = ::testing::internal::GetCapturedStdout();
    EXPECT_TRUE(status.ok()) << status;
    return out;
  };
  EXPECT_THAT(resume(4), AllOf(HasSubstr("resuming after step 3"), Not(HasSubstr("note: "))));
  const std::string path = absl::StrCat(Checkpoint(4), "/", checkpoint::kManifestName);
  absl::StatusOr<checkpoint::Manifest> manifest = checkpoint::ParseManifest(*ReadFile(path), path);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  Json state = Json::parse(manifest->meta.state_json);
  EXPECT_EQ(state["run"].erase("numerics"), 1);
  manifest->meta.state_json = state.dump();
  ASSERT_TRUE(WriteFileAtomic(path, *checkpoint::FormatManifest(*manifest)).ok());
  EXPECT_THAT(resume(5), AllOf(HasSubstr("resuming after step 4"), HasSubstr("note: numerics is "),
                               HasSubstr("rotary angles")));
}

// In place, and as a new file: neither changes its size.
TEST_F(RunWorkerTest, DataThatIsOverwrittenEndsTheRunAfterASave) {
  const std::string text = folder_ + "/text.txt";
  std::string other = *ReadFile(text);
  for (char& c : other) c = c == 'e' ? 'E' : c;
  for (const bool in_place : {true, false}) {
    ASSERT_TRUE(RemoveAll(folder_ + "/checkpoints").ok());
    control_.on_report = [&](const Progress& progress) {
      if (progress.step != 3 || progress.phase != "step") return;
      if (!in_place) {
        EXPECT_TRUE(WriteFileAtomic(text, other).ok());
        return;
      }
      EXPECT_EQ(::truncate(text.c_str(), 0), 0);
      EXPECT_TRUE(AppendFile(text, other).ok());
    };
    const auto outcome = Run({"checkpoint.every_steps=2", "checkpoint.keep=1", "train.steps=9"});
    EXPECT_EQ(ExitCodeFor(outcome.status()), ExitCode::kBadData) << outcome.status();
    EXPECT_THAT(
        std::string(outcome.status().message()),
        AllOf(HasSubstr("text.txt changed while the run was reading it"),
              HasSubstr("step 4 is saved, and the steps from 3 onward may have read the changed bytes")));
    EXPECT_TRUE(Saved(2)) << "the last checkpoint that cannot have read them is kept";
    EXPECT_TRUE(Saved(4));
    EXPECT_FALSE(Saved(6));
    // Without evaluations the end is the next look.
    ASSERT_TRUE(RemoveAll(folder_ + "/checkpoints").ok());
    const auto last = Run({"checkpoint.at_end=false", "train.steps=5"});
    EXPECT_EQ(ExitCodeFor(last.status()), ExitCode::kBadData) << last.status();
    EXPECT_TRUE(Saved(5));
  }
}

// As `touch` does, and as a copy that is renamed.
TEST_F(RunWorkerTest, TheSameBytesUnderAnotherStampChangeNothing) {
  const std::string text = folder_ + "/text.txt";
  const std::string bytes = *ReadFile(text);
  data_record_ = folder_ + "/data.json";
  ASSERT_TRUE(WriteFileAtomic(data_record_, data::FormatDataRecord({*data::FingerprintFile(text)})).ok());
  const std::vector<std::string> sets = {"checkpoint.every_steps=4", "train.steps=9"};
  ASSERT_TRUE(Run(sets).ok());
  const std::string undisturbed = *ReadFile(folder_ + "/metrics.jsonl");
  for (const bool is_new_file : {false, true}) {
    ASSERT_TRUE(RemoveAll(folder_ + "/checkpoints").ok());
    control_.on_report = [&](const Progress& progress) {
      if (progress.step != 3 || progress.phase != "step") return;
      if (is_new_file) {
        EXPECT_TRUE(WriteFileAtomic(text, bytes).ok());
        return;
      }
      const struct timespec times[2] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
      EXPECT_EQ(::utimensat(AT_FDCWD, text.c_str(), times, 0), 0);
    };
    const auto outcome = Run(sets);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(*ReadFile(folder_ + "/metrics.jsonl"), undisturbed);
  }
}

TEST_F(RunWorkerTest, DataThatCannotBeReadEndsTheRunAfterASave) {
  // The worker reads 32 tokens a step, and not the whole dataset first.
  std::vector<int32_t> tokens(1000, 7);
  tokens[3 * 32 + 5] = 300;
  auto writer = data::IndexedWriter::Create(folder_ + "/d", data::TokenType::kU16);
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE((*writer)->Append(tokens).ok());
  (*writer)->EndDocument();
  ASSERT_TRUE((*writer)->Finish().ok());
  for (const char* async : {"false", "true"}) {
    ASSERT_TRUE(RemoveAll(folder_ + "/checkpoints").ok());
    const auto outcome =
        Run({"train.steps=20", "data.shuffle=false", absl::StrCat("checkpoint.async=", async),
             absl::StrCat("data.train=[{files=['", folder_, "/d.bin']}]")});
    EXPECT_EQ(ExitCodeFor(outcome.status()), ExitCode::kBadData) << outcome.status();
    EXPECT_THAT(std::string(outcome.status().message()),
                AllOf(HasSubstr("token 300 is outside the vocabulary of 257"),
                      HasSubstr("the last checkpoint, at step 3, is valid")));
    EXPECT_TRUE(Saved(3));
  }
}

// Two looks at the clock frame the copy, two the wait at the end: a second each.
TEST_F(RunWorkerTest, WhatTrainingWaitedForTheLastSaveIsTold) {
  ::testing::internal::CaptureStdout();
  const auto outcome = Run({});
  const std::string out = ::testing::internal::GetCapturedStdout();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_THAT(out, HasSubstr("checkpoint saved after step 3 (training waited 2.000 s; this rank wrote "));
}

// A disk that hangs holds the saver's thread, and with it the end of the trainer.
TEST_F(RunWorkerTest, AFailureIsToldBeforeTheDiskIsWaitedFor) {
  std::promise<void> told;
  std::atomic<bool> hangs = false;
  checkpoint::SetPhaseHook([&](const char* phase) {
    if (std::string(phase) != "saving") return;
    hangs = true;
    told.get_future().wait();
  });
  control_.on_fail = [&] { told.set_value(); };
  control_.on_report = [&](const Progress& progress) {
    if (hangs && progress.phase == "step") throw std::runtime_error("out of luck");
  };
  const auto outcome = Run({"checkpoint.every_steps=1", "checkpoint.when_busy=skip", "train.steps=1000000"});
  EXPECT_EQ(ExitCodeFor(outcome.status()), ExitCode::kInternal) << outcome.status();
  ASSERT_EQ(control_.failures.size(), 1u);
  EXPECT_THAT(control_.failures[0].message, HasSubstr("out of luck"));
  EXPECT_FALSE(control_.failures[0].peer_failed);
}

class RunWorkerWith : public RunWorkerTest, public ::testing::WithParamInterface<const optim::Optimizer*> {
 protected:
  std::vector<std::string> Sets(int steps) const {
    return {absl::StrCat("optimizer.name=", GetParam()->name), "optimizer.lr_schedule=constant",
            "optimizer.clip_norm=0.5", absl::StrCat("train.steps=", steps)};
  }
};

TEST_P(RunWorkerWith, ResumesToTheSameBits) {
  ASSERT_TRUE(Run(Sets(3)).ok());
  ASSERT_TRUE(Run(Sets(6)).ok());
  const std::string resumed = *ReadFile(Checkpoint(6) + "/rank-00000.safetensors");
  ASSERT_TRUE(RemoveAll(folder_ + "/checkpoints").ok());
  ASSERT_TRUE(Run(Sets(6)).ok());
  EXPECT_TRUE(resumed == *ReadFile(Checkpoint(6) + "/rank-00000.safetensors"));
  EXPECT_THAT(resumed, HasSubstr(GetParam()->states[0].TensorPrefix()));
}

// In fp32 the parameters are their own master: the optimizer's memory is its state alone.
TEST_P(RunWorkerWith, MemoryIsWhatThePlanSays) {
  for (const char* precision : {"fp32", "bf16"}) {
    std::vector<std::string> sets = Sets(2);
    sets.insert(sets.end(), {absl::StrCat("train.precision=", precision), "checkpoint.every_steps=1"});
    ASSERT_TRUE(RemoveAll(folder_ + "/checkpoints").ok());
    device::Device::Cpu().ResetPeak();  // of other tests
    ASSERT_TRUE(Run(sets).ok());
    const Json report = *ParseJson(*ReadFile(folder_ + "/report.json"), "report.json");
    EXPECT_TRUE(report["peak_is_met"].get<bool>());
    // On CPUs with matrix instructions a product takes scratch memory that no plan has, which can move the
    // peak to a moment with fewer activations.
    const bool has_scratch = report["library_scratch_bytes"].get<int64_t>() > 0;
    for (const char* category : {"optimizer", "parameters", "gradients", "buffers", "activations"}) {
      if (has_scratch && category == std::string("activations")) {
        EXPECT_LE(report["measured_at_peak"][category].get<int64_t>(),
                  report["predicted_at_peak"][category].get<int64_t>());
        continue;
      }
      EXPECT_EQ(report["measured_at_peak"][category].get<int64_t>(),
                report["predicted_at_peak"][category].get<int64_t>())
          << category << " in " << precision;
    }
    EXPECT_GT(report["measured_at_peak"]["optimizer"].get<int64_t>(), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(All, RunWorkerWith, ::testing::ValuesIn(optim::All().begin(), optim::All().end()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace trainctl::trainer
