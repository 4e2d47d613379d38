// Checkpoints written beside training: what they hold, and what becomes of them when something fails.

#include "trainer/background_save.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/files.h"
#include "base/status.h"
#include "checkpoint/phase_hook.h"
#include "comm/communicator.h"
#include "model/architecture.h"
#include "model/parameters.h"
#include "model/presets.h"
#include "parallel/sharded_state.h"
#include "schedule/build_step.h"

namespace {
std::atomic<bool> g_folders_stay = false;
}  // namespace

// In the place of the C library's, for this program: a network file system answers so where another machine
// has a file of the folder open.
extern "C" int rmdir(const char* path) noexcept {
  if (!g_folders_stay) return static_cast<int>(::syscall(SYS_rmdir, path));
  errno = ENOTEMPTY;
  return -1;
}

namespace trainctl::trainer {
namespace {

using ::testing::HasSubstr;

// Master and states of a bucket.
std::vector<float*> PartsOf(const parallel::ShardedState& state, int bucket) {
  std::vector<float*> parts = {static_cast<float*>(state.parts(bucket).master)};
  for (size_t k = 0; k < state.optimizer().states.size(); ++k)
    parts.push_back(static_cast<float*>(state.parts(bucket).states[k]));
  return parts;
}

void Fill(parallel::ShardedState& state, float value) {
  for (const layout::Bucket& bucket : state.ledger().buckets()) {
    for (float* part : PartsOf(state, bucket.id)) {
      std::fill_n(part, state.ledger().optimizer_numel(bucket.id), value);
      value += 1;
    }
  }
}

// One rank with a state, and a folder of its own.
class BackgroundSave : public ::testing::Test {
 protected:
  BackgroundSave()
      : spec_(*model::Preset("toy-1m")),
        ledger_(model::Inventory(spec_), layout::Mesh{}, 0),
        step_(schedule::BuildStep(
            schedule::GraphOf(spec_, ledger_, {.setting = {.seq_len = 16, .checkpoint_copy = true}}), ledger_,
            {.setting = {.seq_len = 16, .checkpoint_copy = true}})),
        state_(device::Device::Cpu(), ledger_, step_.programs[0], step_.types, 0, optim::kAdamW),
        world_(communicator_->MakeHostGroup({0}, "world")) {
    std::string pattern = ::testing::TempDir() + "trainctl-save-XXXXXX";
    folder_ = mkdtemp(pattern.data());
    options_ = {.root = folder_ + "/checkpoints", .retention = {.keep = 3}, .description_json = "{}"};
  }
  ~BackgroundSave() override {
    checkpoint::SetPhaseHook({});
    (void)RemoveAll(folder_);
  }

  // Holds the thread that writes, half way through its file, until Release.
  void HoldWriting() {
    checkpoint::SetPhaseHook([this](const char* phase) {
      if (std::string(phase) != "saving") return;
      reached_.set_value();
      released_.get_future().wait();
    });
  }
  void Release() { released_.set_value(); }

  // Every tensor of the checkpoint of `step` is what Fill(value) left.
  void ExpectHolds(int64_t step, float value) {
    parallel::ShardedState wanted(device::Device::Cpu(), ledger_, step_.programs[0], step_.types, 0,
                                  optim::kAdamW);
    Fill(wanted, value);
    parallel::ShardedState loaded(device::Device::Cpu(), ledger_, step_.programs[0], step_.types, 0,
                                  optim::kAdamW);
    const auto counters = LoadCheckpoint(absl::StrFormat("%s/step-%08d", options_.root, step), loaded, false);
    ASSERT_TRUE(counters.ok()) << counters.status();
    EXPECT_EQ(counters->step, step);
    for (const layout::Bucket& bucket : ledger_.buckets()) {
      for (const layout::ParameterRange& range : ledger_.OptimizerRanges(bucket.id, 0)) {
        const int64_t last = range.offset + range.count - 1;
        const std::vector<float*> got = PartsOf(loaded, bucket.id);
        const std::vector<float*> want = PartsOf(wanted, bucket.id);
        for (size_t k = 0; k < want.size(); ++k) EXPECT_EQ(got[k][last], want[k][last]) << k;
      }
    }
  }

  const model::Architecture spec_;
  const layout::Ledger ledger_;
  const schedule::Step step_;
  parallel::ShardedState state_;
  std::unique_ptr<comm::Communicator> communicator_ =
      *comm::Communicator::Create(device::Device::Cpu(), nullptr, 0, 1, absl::Seconds(1));
  comm::Group world_;
  std::string folder_;
  SaveOptions options_;
  std::promise<void> reached_, released_;
};

TEST_F(BackgroundSave, HoldsTheStateOfItsStepThoughTrainingWentOn) {
  BackgroundSaver saver(state_);
  HoldWriting();
  Fill(state_, 1);
  saver.Start(options_, {.step = 5, .updates = 5, .tokens = 80});
  while (!saver.IsDone()) std::this_thread::yield();
  EXPECT_FALSE(saver.Advance());
  reached_.get_future().wait();
  EXPECT_FALSE(saver.idle());
  EXPECT_FALSE(saver.IsDone());
  EXPECT_FALSE(PathExists(options_.root + "/step-00000005"));
  Fill(state_, 1000);  // the next steps
  Release();
  ASSERT_TRUE(saver.Drain(world_).ok());
  EXPECT_TRUE(saver.idle());
  ExpectHolds(5, 1);
}

TEST_F(BackgroundSave, IsCommittedByTheStepsThatFollow) {
  BackgroundSaver saver(state_);
  int num_synced = 0;  // by the thread that commits; read when it has
  options_.sync_logs = [&] {
    ++num_synced;
    return absl::OkStatus();
  };
  for (int64_t step = 1; step <= 3; ++step) {
    Fill(state_, static_cast<float>(step));
    saver.Start(options_, {.step = step});
    bool committed = false;
    while (!committed) {
      if (!saver.IsDone()) continue;
      ASSERT_TRUE(saver.result().ok()) << saver.result();
      committed = saver.Advance();
    }
    EXPECT_EQ(saver.step(), step);
    EXPECT_EQ(num_synced, step);
  }
  for (int64_t step = 1; step <= 3; ++step) ExpectHolds(step, static_cast<float>(step));
}

TEST_F(BackgroundSave, AFailureIsReportedAndTheCheckpointBeforeStays) {
  BackgroundSaver saver(state_);
  Fill(state_, 1);
  saver.Start(options_, {.step = 1});
  ASSERT_TRUE(saver.Drain(world_).ok());
  // A log that cannot be synced, and a folder that cannot be made.
  BackgroundSaver unsynced(state_);
  SaveOptions failing = options_;
  failing.sync_logs = [] { return EnvironmentError("metrics.jsonl: cannot be synced"); };
  unsynced.Start(failing, {.step = 2});
  EXPECT_THAT(std::string(unsynced.Drain(world_).message()), HasSubstr("metrics.jsonl"));
  ASSERT_TRUE(WriteFileAtomic(folder_ + "/file", "").ok());
  SaveOptions nowhere = options_;
  nowhere.root = folder_ + "/file/checkpoints";
  BackgroundSaver lost(state_);
  lost.Start(nowhere, {.step = 3});
  const absl::Status status = lost.Drain(world_);
  EXPECT_EQ(ExitCodeFor(status), ExitCode::kEnvironment) << status;
  ExpectHolds(1, 1);
  EXPECT_FALSE(PathExists(options_.root + "/step-00000002"));
}

TEST_F(BackgroundSave, IsGivenUpWhenTheRunEnds) {
  Fill(state_, 1);
  BackgroundSaver saver(state_);
  HoldWriting();
  saver.Start(options_, {.step = 1});
  while (!saver.IsDone()) std::this_thread::yield();  // the folder
  EXPECT_FALSE(saver.Advance());
  reached_.get_future().wait();
  saver.GiveUp();
  Release();
  while (!saver.IsDone()) std::this_thread::yield();
  EXPECT_TRUE(absl::IsCancelled(saver.result())) << saver.result();
  EXPECT_FALSE(PathExists(options_.root + "/.tmp-step-00000001/rank-00000.safetensors"));
}

TEST_F(BackgroundSave, WhatCannotBeRemovedIsAWarning) {
  options_.retention.keep = 1;
  std::vector<std::string> warnings;
  options_.warn = [&](const std::string& what) { warnings.push_back(what); };
  BackgroundSaver saver(state_);
  for (int64_t step = 1; step <= 3; ++step) {
    g_folders_stay = step == 2;
    Fill(state_, static_cast<float>(step));
    saver.Start(options_, {.step = step});
    const absl::Status status = saver.Drain(world_);
    g_folders_stay = false;
    ASSERT_TRUE(status.ok()) << status;
    ExpectHolds(step, static_cast<float>(step));
    const bool stays = PathExists(options_.root + "/.tmp-removed-step-00000001");
    EXPECT_EQ(stays, step == 2) << "after the save of step " << step;
  }
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr(".tmp-removed-step-00000001"));
}

// Two ranks that hold a half each.
class BackgroundSaveOfTwo : public BackgroundSave {
 protected:
  BackgroundSaveOfTwo() {
    for (int rank = 0; rank < 2; ++rank) {
      states_.push_back(std::make_unique<parallel::ShardedState>(device::Device::Cpu(), halves_,
                                                                 step_of_halves_.programs[0],
                                                                 step_of_halves_.types, rank, optim::kAdamW));
      Fill(*states_.back(), static_cast<float>(10 * rank));
      savers_.push_back(std::make_unique<BackgroundSaver>(*states_.back()));
    }
  }
  static layout::Mesh MeshOfTwo() {
    layout::Mesh mesh;
    mesh.dp_shard = 2;
    return mesh;
  }
  void AwaitBoth() {
    while (!savers_[0]->IsDone() || !savers_[1]->IsDone()) std::this_thread::yield();
  }

  const layout::Ledger halves_{model::Inventory(spec_), MeshOfTwo(), 3};
  const schedule::Step step_of_halves_ = schedule::BuildStep(
      schedule::GraphOf(spec_, halves_, {.setting = {.seq_len = 16, .checkpoint_copy = true}}), halves_,
      {.setting = {.seq_len = 16, .checkpoint_copy = true}});
  std::vector<std::unique_ptr<parallel::ShardedState>> states_;
  std::vector<std::unique_ptr<BackgroundSaver>> savers_;
};

// The others need nothing of rank 0 and of the launcher until all agree to go on.
TEST_F(BackgroundSaveOfTwo, OthersWriteWhenTheFirstHasBegun) {
  savers_[1]->Start(options_, {.step = 4});
  while (!savers_[1]->IsDone()) std::this_thread::yield();
  EXPECT_TRUE(savers_[1]->result().ok());
  EXPECT_FALSE(PathExists(options_.root)) << "begun by rank 0 alone";
  savers_[0]->Start(options_, {.step = 4});
  for (bool committed = false; !committed;) {
    AwaitBoth();
    ASSERT_TRUE(savers_[0]->result().ok() && savers_[1]->result().ok());
    committed = savers_[0]->Advance();
    EXPECT_EQ(savers_[1]->Advance(), committed);
  }
  EXPECT_TRUE(PathExists(options_.root + "/step-00000004/rank-00001.safetensors"));
  parallel::ShardedState loaded(device::Device::Cpu(), halves_, step_of_halves_.programs[0],
                                step_of_halves_.types, 1, optim::kAdamW);
  ASSERT_TRUE(LoadCheckpoint(options_.root + "/step-00000004", loaded, false).ok());
  EXPECT_EQ(PartsOf(loaded, 0)[0][0], PartsOf(*states_[1], 0)[0][0]);
}

TEST_F(BackgroundSaveOfTwo, ABeginningThatFailsIsKnownToTheFirstAndHoldsNobody) {
  ASSERT_TRUE(WriteFileAtomic(folder_ + "/file", "").ok());
  options_.root = folder_ + "/file/checkpoints";
  for (auto& saver : savers_) saver->Start(options_, {.step = 4});
  AwaitBoth();
  EXPECT_EQ(ExitCodeFor(savers_[0]->result()), ExitCode::kEnvironment) << savers_[0]->result();
  EXPECT_TRUE(savers_[1]->result().ok()) << "it hears of it from the others' agreement";
}

}  // namespace
}  // namespace trainctl::trainer
