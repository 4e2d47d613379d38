#include "trainer/step_profile.h"

#include <torch/csrc/autograd/profiler_kineto.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"

namespace trainctl::trainer {
namespace {

using torch::profiler::impl::ActivityType;
using torch::profiler::impl::ProfilerConfig;
using torch::profiler::impl::ProfilerState;

}  // namespace

StepProfile::StepProfile(const device::Device& device) {
  std::set<ActivityType> activities = {ActivityType::CPU};
  if (device.torch().is_cuda()) activities.insert(ActivityType::CUDA);
  const ProfilerConfig config(ProfilerState::KINETO);
  torch::autograd::profiler::prepareProfiler(config, activities);
  torch::autograd::profiler::enableProfiler(config, activities, {at::RecordScope::FUNCTION});
}

StepProfile::~StepProfile() {
  if (running_) torch::autograd::profiler::disableProfiler();
}

absl::Status StepProfile::Write(const std::string& folder, int64_t step, int rank) {
  running_ = false;
  const std::unique_ptr<torch::autograd::profiler::ProfilerResult> result =
      torch::autograd::profiler::disableProfiler();
  TRAINCTL_RETURN_IF_ERROR(MakeDirs(folder));
  const std::string path = absl::StrCat(folder, "/step-", step, "-rank-", rank, ".json");
  const std::string draft = absl::StrCat(folder, "/.step-", step, "-rank-", rank, ".json");
  result->save(draft);
  if (std::rename(draft.c_str(), path.c_str()) != 0) return ErrnoError("write", path, errno);
  return absl::OkStatus();
}

}  // namespace trainctl::trainer
