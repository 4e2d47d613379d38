#include "trainer/background_save.h"

#include <chrono>

#include "base/life_signs.h"
#include "base/status.h"

namespace trainctl::trainer {

BackgroundSaver::BackgroundSaver(const parallel::ShardedState& state) : state_(state) {
  if (state.ledger().WritesCheckpoint(state.rank())) copy_.emplace(state);
}

BackgroundSaver::~BackgroundSaver() {
  GiveUp();
  if (work_.valid()) work_.wait();
}

void BackgroundSaver::Start(const SaveOptions& options, const RunCounters& counters) {
  TRAINCTL_CHECK(idle());
  if (copy_.has_value()) copy_->Take();
  save_ = std::make_unique<RankSave>(
      options, device::Device::Cpu(), state_,
      [this](int bucket) -> const optim::Parts& { return copy_->parts(bucket); }, counters);
  DoPhase();
}

void BackgroundSaver::DoPhase() {
  result_ = absl::OkStatus();
  work_ = std::async(std::launch::async, [this] {
    WorkInBackground();
    return save_->Do(&cancelled_);
  });
}

bool BackgroundSaver::IsDone() {
  if (!work_.valid()) return true;
  if (work_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return false;
  result_ = work_.get();
  return true;
}

bool BackgroundSaver::Advance() {
  save_->Advance();
  if (!idle()) DoPhase();
  return idle();
}

absl::Status BackgroundSaver::Drain(comm::Group& world) {
  while (!idle()) {
    if (work_.valid()) result_ = work_.get();
    TRAINCTL_RETURN_IF_ERROR(save_->AdvanceTogether(world, result_));
    if (!idle()) DoPhase();
  }
  return absl::OkStatus();
}

}  // namespace trainctl::trainer
