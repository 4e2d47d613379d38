#include "device/device.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cstring>
#include <exception>

#include "base/life_signs.h"
#include "base/status.h"
#include "device/aten.h"
#include "device/error_text.h"
#include "kernels/device_api.h"

namespace trainctl::device {
namespace {

c10::CachingDeviceAllocator::DeviceStats StatsOf(at::Device device) {
  return c10::getDeviceAllocator(device.type())->getDeviceStats(device.index());
}

constexpr size_t kAllPools = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);

}  // namespace

Device::Device() : kernels_(&kernels::Cpu()), torch_(at::kCPU), description_("CPU") {}

Device::Device(const kernels::DeviceApi* api, const kernels::DeviceProperties& properties, int ordinal)
    : api_(api),
      kernels_(api->kernels),
      torch_(static_cast<at::DeviceType>(api->torch_device_type), static_cast<at::DeviceIndex>(ordinal)),
      description_(properties.name) {}

const Device& Device::Cpu() {
  static const Device device;
  return device;
}

at::Tensor Device::View(void* data, at::IntArrayRef sizes, at::ScalarType dtype) const {
  return at::for_blob(data, sizes).options(Options(dtype)).target_device(torch_).make_tensor();
}

namespace {

at::Tensor Bytes(const Device& device, const void* data, int64_t bytes) {
  return device.View(const_cast<void*>(data), {bytes}, at::kByte);
}

}  // namespace

void Device::Zero(void* data, int64_t bytes) const {
  if (is_cpu()) {
    std::memset(data, 0, static_cast<size_t>(bytes));
  } else if (bytes > 0) {
    Bytes(*this, data, bytes).zero_();
  }
}

void Device::Copy(void* to, const void* from, int64_t bytes) const {
  if (is_cpu()) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  } else if (bytes > 0) {
    Bytes(*this, to, bytes).copy_(Bytes(*this, from, bytes));
  }
}

void Device::CopyToDevice(void* to, const void* from, int64_t bytes) const {
  if (is_cpu()) return Copy(to, from, bytes);
  if (bytes > 0) Bytes(*this, to, bytes).copy_(Bytes(Cpu(), from, bytes));
}

void Device::CopyToHost(void* to, const void* from, int64_t bytes) const {
  if (is_cpu()) return Copy(to, from, bytes);
  const WaitingForOthers waiting;  // what was queued before may stand in a collective
  if (bytes > 0) Bytes(Cpu(), to, bytes).copy_(Bytes(*this, from, bytes));
}

at::Tensor Device::PinnedBytes(int64_t bytes) const {
  return at::empty({bytes}, at::TensorOptions(at::kByte).pinned_memory(!is_cpu()));
}

void Device::CopyPinnedToDevice(void* to, const at::Tensor& pinned) const {
  if (pinned.numel() > 0) Bytes(*this, to, pinned.numel()).copy_(pinned, /*non_blocking=*/true);
}

void Device::CopyToPinned(at::Tensor& pinned, const void* from) const {
  if (pinned.numel() > 0) pinned.copy_(Bytes(*this, from, pinned.numel()), /*non_blocking=*/true);
}

void Device::UseNewStream() const {
  if (is_cpu()) return;
  const c10::impl::VirtualGuardImpl guard(torch_.type());
  guard.setDevice(torch_);
  guard.exchangeStream(guard.getStreamFromGlobalPool(torch_, /*isHighPriority=*/false));
}

void Device::UseHere(const at::Tensor& tensor) const {
  if (is_cpu()) return;
  const c10::impl::VirtualGuardImpl guard(torch_.type());
  guard.recordDataPtrOnStream(tensor.storage().data_ptr(), guard.getStream(torch_));
}

absl::Status Device::Synchronize() const {
  if (is_cpu()) return absl::OkStatus();
  const WaitingForOthers waiting;
  try {
    const c10::impl::VirtualGuardImpl guard(torch_.type());
    guard.synchronizeStream(guard.getStream(torch_));
  } catch (const std::exception& error) {
    return WorkerError(absl::StrCat(description_, ": ", ErrorText(error)));
  }
  char reason[512] = "";
  if (api_->take_error(reason, sizeof(reason)) != 0)
    return WorkerError(absl::StrCat(description_, ": ", reason));
  return absl::OkStatus();
}

MemoryUse Device::memory() const {
  if (is_cpu()) return {LiveTensorBytes(), PeakTensorBytes(), TensorBytesAtPeak()};
  const c10::CachingDeviceAllocator::DeviceStats stats = StatsOf(torch_);
  MemoryUse use{stats.allocated_bytes[kAllPools].current, stats.allocated_bytes[kAllPools].peak, {}};
  int64_t rest = use.peak;
  for (size_t tag = 1; tag < use.at_peak.size(); ++tag) {
    use.at_peak[tag] = tagged_[tag].load(std::memory_order_relaxed);
    rest -= use.at_peak[tag];
  }
  use.at_peak[0] = rest;
  return use;
}

void Device::ResetPeak() const {
  if (is_cpu()) return ResetPeakTensorBytes();
  c10::getDeviceAllocator(torch_.type())->resetPeakStats(torch_.index());
}

ScopedMemoryTag::ScopedMemoryTag(const Device& device, int tag)
    : device_(device),
      tag_(tag),
      cpu_tag_(tag),
      live_before_(device.is_cpu() ? 0 : StatsOf(device.torch_).allocated_bytes[kAllPools].current) {}

ScopedMemoryTag::~ScopedMemoryTag() {
  if (device_.is_cpu()) return;
  device_.tagged_[static_cast<size_t>(tag_)] +=
      StatsOf(device_.torch_).allocated_bytes[kAllPools].current - live_before_;
}

Event::Event(const Device& device) : device_(&device) {
  if (!device.is_cpu()) event_.emplace(device.torch().type());
}

void Event::Record() {
  if (!event_) return;
  const c10::impl::VirtualGuardImpl guard(device_->torch().type());
  event_->record(guard.getStream(device_->torch()));
}

void Event::HoldStream() const {
  if (!event_) return;
  const c10::impl::VirtualGuardImpl guard(device_->torch().type());
  event_->block(guard.getStream(device_->torch()));
}

}  // namespace trainctl::device
