#include "trainer/background_save.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/files.h"
#include "base/status.h"

namespace trainctl::trainer {
namespace {

// How often a rank that waits for rank 0 looks whether it shall give up.
constexpr absl::Duration kLook = absl::Seconds(1);
constexpr uint8_t kBegun = 1;
constexpr uint8_t kFailed = 2;

}  // namespace

BackgroundSaver::BackgroundSaver(const parallel::ShardedState& state, KeyValueStore& store,
                                 std::vector<std::string> sync_paths)
    : state_(state), store_(store), sync_paths_(std::move(sync_paths)) {
  if (state.ledger().WritesCheckpoint(state.rank())) copy_.emplace(state);
}

BackgroundSaver::~BackgroundSaver() {
  cancelled_ = true;
  if (work_.valid()) work_.wait();
}

void BackgroundSaver::Start(const SaveOptions& options, const RunCounters& counters) {
  TRAINCTL_CHECK(idle());
  result_ = absl::OkStatus();
  if (copy_.has_value()) copy_->Take();
  save_ = std::make_unique<RankSave>(
      options, device::Device::Cpu(), state_.ledger(), state_.rank(),
      [this](int bucket) { return copy_->parts(bucket); }, counters);
  phase_ = Phase::kWriting;
  work_ = std::async(std::launch::async, [this] { return BeginAndWrite(); });
}

absl::Status BackgroundSaver::BeginAndWrite() {
  const std::string key = absl::StrCat("checkpoint/begun/", save_->step());
  if (state_.rank() != 0) {
    TRAINCTL_RETURN_IF_ERROR(WaitForBegin(key));
    return save_->Write(&cancelled_);
  }
  const absl::Status begun = save_->Begin();
  const uint8_t word = begun.ok() ? kBegun : kFailed;
  const absl::Status told = store_.Set(key, absl::MakeConstSpan(&word, 1));
  TRAINCTL_RETURN_IF_ERROR(begun);
  TRAINCTL_RETURN_IF_ERROR(told);
  return save_->Write(&cancelled_);
}

absl::Status BackgroundSaver::WaitForBegin(const std::string& key) {
  while (!cancelled_) {
    const absl::StatusOr<std::vector<uint8_t>> word = store_.Get(key, kLook);
    if (absl::IsDeadlineExceeded(word.status())) continue;
    if (!word.ok()) return word.status();
    if (word->size() == 1 && word->front() == kBegun) return absl::OkStatus();
    return WorkerError("rank 0 could not begin the checkpoint");
  }
  return absl::CancelledError("the save was given up");
}

absl::Status BackgroundSaver::SyncAndCommit() {
  for (const std::string& path : sync_paths_) TRAINCTL_RETURN_IF_ERROR(SyncFile(path));
  return save_->Commit();
}

bool BackgroundSaver::IsDone() {
  if (!work_.valid()) return true;
  if (work_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return false;
  result_ = work_.get();
  return true;
}

bool BackgroundSaver::Advance() {
  if (phase_ == Phase::kWriting) {
    phase_ = Phase::kCommitting;
    if (state_.rank() == 0) work_ = std::async(std::launch::async, [this] { return SyncAndCommit(); });
    return false;
  }
  phase_ = Phase::kIdle;
  return true;
}

absl::Status BackgroundSaver::Drain(comm::Group& world) {
  while (!idle()) {
    if (work_.valid()) result_ = work_.get();
    TRAINCTL_RETURN_IF_ERROR(
        AllSucceeded(world, phase_ == Phase::kWriting ? "checkpoint/write" : "checkpoint/commit", result_));
    Advance();
  }
  return absl::OkStatus();
}

}  // namespace trainctl::trainer
