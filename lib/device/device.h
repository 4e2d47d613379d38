// The device that holds the trainer's tensors and runs its operators: the CPU of this process, or one device
// that a plugin provides (kernels/device_api.h). The modules above use it for memory, copies, streams and
// operators, and do not depend on the kind of device.
//
//   TRAINCTL_ASSIGN_OR_RETURN(const auto device, Device::Open(plugin_path, {.ordinal = local_rank}));
//   device->UseNewStream();
//   device->Zero(data, bytes);
//   TRAINCTL_RETURN_IF_ERROR(device->Synchronize());
//
// Each thread works on its current stream. On the CPU, every call is complete when it returns. On a plugin's
// device, calls queue their work on the stream and return before it is done, unless their comment says that
// they wait. Failures in ATen are thrown as exceptions, except by the methods that return a status. The
// callers in lib/parallel catch them.
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

namespace trainctl::kernels {
struct DeviceApi;
struct DeviceProperties;
struct Kernels;
}  // namespace trainctl::kernels

namespace trainctl::device {

// Bytes of tensors, as counted by the device's allocator.
struct MemoryUse {
  int64_t live = 0;  // currently in use
  int64_t peak = 0;  // largest number in use since the last ResetPeak
  // Bytes by tag; they sum to `peak`. On the CPU they are the bytes in use at the peak. On a plugin's device
  // they are the bytes that ScopedMemoryTag has counted in total, and tag 0 has the rest of the peak.
  TaggedBytes at_peak = {};
};

class Device {
 public:
  // Returns the CPU, which exists until the process ends.
  static const Device& Cpu();
  struct Choice {
    int ordinal = 0;  // number of the device among those that the plugin can use
    // Whether LibTorch's operators must give the same bits each time. Applies to the whole process.
    bool deterministic = false;
    // For tests. If set, `ordinal` is the number of the worker, and workers are assigned to devices in turn,
    // so that several workers may use one device.
    bool is_shared = false;
  };
  // Loads the plugin and makes one of its devices the device of this process and of the calling thread. Call
  // it at most once per process. Returns EnvironmentError with the reason if the plugin is missing or from
  // another build, or if the driver or device cannot be used.
  static absl::StatusOr<std::unique_ptr<const Device>> Open(const std::string& plugin_path, Choice choice);

  bool is_cpu() const { return api_ == nullptr; }
  const std::string& description() const { return description_; }  // such as "NVIDIA H100 80GB HBM3"
  at::Device torch() const { return torch_; }
  at::TensorOptions Options(at::ScalarType dtype) const { return at::TensorOptions(dtype).device(torch_); }
  const kernels::Kernels& kernels() const { return *kernels_; }
  const kernels::DeviceApi* api() const { return api_; }  // null for the CPU

  void Zero(void* data, int64_t bytes) const;  // `data` is on the device
  // Copies within the device's memory.
  void Copy(void* to, const void* from, int64_t bytes) const;
  // Copies from ordinary host memory. The caller may reuse `from` as soon as the call returns.
  void CopyToDevice(void* to, const void* from, int64_t bytes) const;
  // Copies to ordinary host memory. Waits until the copy is done.
  void CopyToHost(void* to, const void* from, int64_t bytes) const;
  // Allocates page-locked host memory, which the device can copy from and to without the host. On the CPU,
  // allocates ordinary memory. The result has shape [bytes] and type uint8.
  at::Tensor PinnedBytes(int64_t bytes) const;
  // Copy all bytes of `pinned`, a tensor from PinnedBytes, to or from the device. The copies are queued on
  // the stream like other work. The caller must not use the bytes of `pinned` until the stream has reached
  // that point.
  void CopyPinnedToDevice(void* to, const at::Tensor& pinned) const;
  void CopyToPinned(at::Tensor& pinned, const void* from) const;
  // Returns a tensor over existing memory of the device. The tensor does not own the memory, which must
  // outlive it.
  at::Tensor View(void* data, at::IntArrayRef sizes, at::ScalarType dtype) const;

  // Gives the calling thread its own stream, on which it works from now on. Does nothing on the CPU.
  void UseNewStream() const;
  // Records that the calling thread's stream uses `tensor`, which may have been allocated on another stream.
  // The allocator then does not reuse the tensor's memory before the work queued on this stream is done.
  void UseHere(const at::Tensor& tensor) const;
  // Waits until the work queued on the calling thread's stream is done. Returns WorkerError with the reason
  // if the device or a kernel has reported a failure.
  absl::Status Synchronize() const;

  MemoryUse memory() const;
  void ResetPeak() const;  // sets the peak to the bytes in use now

 private:
  friend class ScopedMemoryTag;
  Device();
  explicit Device(const kernels::DeviceApi* api, const kernels::DeviceProperties& properties, int ordinal);

  const kernels::DeviceApi* api_ = nullptr;
  const kernels::Kernels* kernels_;
  at::Device torch_;
  std::string description_;
  // Bytes of a plugin's device by tag: those that were allocated while a ScopedMemoryTag existed and were
  // still in use when it ended.
  mutable std::array<std::atomic<int64_t>, kNumMemoryTags> tagged_ = {};
};

// Counts memory of `device` under `tag` while the object exists. On the CPU, counts all tensors that this
// thread allocates. On a plugin's device, counts the growth of the memory in use between the constructor and
// the destructor, regardless of the thread.
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

// A point in a stream's queue of work, by which one stream can wait for another. Does nothing on the CPU,
// because every call there is complete when it returns.
//
//   Event event(device);
//   event.Record();      // on the thread of the first stream
//   event.HoldStream();  // on the thread of the second stream
class Event {
 public:
  explicit Event(const Device& device);
  // Records the point after all work that is queued on the calling thread's stream.
  void Record();
  // Makes all work that is queued on the calling thread's stream from now on wait for the recorded point.
  // Does not block the host.
  void HoldStream() const;

 private:
  const Device* device_;
  std::optional<c10::Event> event_;
};

}  // namespace trainctl::device
