// Where the trainer's tensors live and its operators run: this process's CPU, or one device that a plugin
// brings (kernels/device_api.h). Everything above asks it for memory, copies, streams and operators, and
// names no device itself.
//
// A thread works on its current stream. On the CPU there is one way to work, at once; on a device, work is
// queued on the stream and calls return before it is done, except where they say that they wait. ATen
// throws on failure; those who call through lib/parallel catch.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "device/counting_allocator.h"
#include "kernels/device_api.h"

namespace trainctl::device {

// Bytes of tensors, as the allocator counts them.
struct MemoryUse {
  int64_t live = 0;
  int64_t peak = 0;
  TaggedBytes at_peak = {};  // sums to peak
};

class Device {
 public:
  static const Device& Cpu();
  struct Choice {
    int ordinal = 0;
    bool deterministic = false;  // LibTorch's operators give the same bits each time; for the whole process
    bool is_shared = false;      // `ordinal` counts workers, which take the devices in turn: for tests
  };
  // The plugin's device, for this process and from the calling thread on. Errors: EnvironmentError with the
  // reason: no such plugin, one of another version, no driver, no such device.
  static absl::StatusOr<std::unique_ptr<const Device>> Open(const std::string& plugin_path, Choice choice);

  bool is_cpu() const { return api_ == nullptr; }
  const std::string& description() const { return description_; }  // "NVIDIA H100 80GB HBM3"
  at::Device torch() const { return torch_; }
  at::TensorOptions Options(at::ScalarType dtype) const { return at::TensorOptions(dtype).device(torch_); }
  const kernels::Kernels& kernels() const { return *kernels_; }
  const kernels::DeviceApi* api() const { return api_; }  // null: the CPU

  void Zero(void* data, int64_t bytes) const;
  void Copy(void* to, const void* from, int64_t bytes) const;          // both on the device
  void CopyToDevice(void* to, const void* from, int64_t bytes) const;  // `from` may be reused at once
  void CopyToHost(void* to, const void* from, int64_t bytes) const;    // waits
  // Host memory that a device copies from and to without the host; ordinary memory on the CPU.
  at::Tensor PinnedBytes(int64_t bytes) const;
  // Queued like other work: all of `pinned`, which nobody else touches before the stream has come there.
  void CopyPinnedToDevice(void* to, const at::Tensor& pinned) const;
  void CopyToPinned(at::Tensor& pinned, const void* from) const;
  // Memory of the device, seen as a tensor.
  at::Tensor View(void* data, at::IntArrayRef sizes, at::ScalarType dtype) const;

  // From here on the calling thread works on a stream of its own.
  void UseNewStream() const;
  // The calling thread's stream works on a tensor that another one may have allocated: nobody is given its
  // memory before that work is done.
  void UseHere(const at::Tensor& tensor) const;
  // Waits for the calling thread's stream. Errors: WorkerError with what a kernel reported.
  absl::Status Synchronize() const;

  MemoryUse memory() const;
  void ResetPeak() const;  // to what lives now

 private:
  friend class ScopedMemoryTag;
  Device();
  explicit Device(const kernels::DeviceApi* api, const kernels::DeviceProperties& properties, int ordinal);

  const kernels::DeviceApi* api_ = nullptr;
  const kernels::Kernels* kernels_;
  at::Device torch_;
  std::string description_;
  // What tags say of a device's memory: the bytes that were allocated while the tag lived and stayed.
  mutable std::array<std::atomic<int64_t>, kNumMemoryTags> tagged_ = {};
};

// What this thread allocates on `device` while it lives counts under `tag`: on the CPU all of it, on another
// device what is left of it when the tag ends.
class ScopedMemoryTag {
 public:
  ScopedMemoryTag(const Device& device, int tag);
  ~ScopedMemoryTag();
  ScopedMemoryTag(const ScopedMemoryTag&) = delete;
  ScopedMemoryTag& operator=(const ScopedMemoryTag&) = delete;

 private:
  const Device& device_;
  const int tag_;
  const ScopedCpuMemoryTag cpu_tag_;
  const int64_t live_before_;
};

// A point in a stream. On the CPU it is always in the past.
class Event {
 public:
  explicit Event(const Device& device);
  void Record();            // behind what the calling thread's stream has queued
  void HoldStream() const;  // what the calling thread's stream gets from here on waits for the recorded point

 private:
  const Device* device_;
  std::optional<c10::Event> event_;
};

}  // namespace trainctl::device
