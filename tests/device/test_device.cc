// A device for tests where there is none: its memory is this process's, but seen at addresses that nobody may
// touch, so that host code that reads or writes device memory dies at once. Its operators are the CPU's, its
// collectives Gloo's. A plugin like any other (kernels/device_api.h).
//
// Every allocation lies in one file of memory that is mapped twice: without any right at the addresses that
// tensors have, and readable and writable at a fixed distance, which only this file knows.

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <sys/mman.h>
#include <torch/headeronly/version.h>
#include <torch/library.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "comm/gloo_backend.h"
#include "kernels/device_api.h"

namespace {

using trainctl::kernels::AdamWOptions;
using trainctl::kernels::DeviceApi;
using trainctl::kernels::DeviceProperties;
using trainctl::kernels::Kernels;
using trainctl::kernels::TypedKernels;

constexpr at::DeviceType kType = at::DeviceType::PrivateUse1;
constexpr int kDevices = 8;
constexpr size_t kMemoryBytes = size_t{1} << 30;
constexpr size_t kAlignment = 512;

[[noreturn]] void Die(const char* what) {
  std::fprintf(stderr, "test device: %s\n", what);
  std::abort();
}

// ---- memory ---------------------------------------------------------------------------------------

class Memory {
 public:
  Memory() {
    const int file = memfd_create("test device", 0);
    if (file < 0 || ftruncate(file, static_cast<off_t>(kMemoryBytes)) != 0) Die("no memory");
    device_ = static_cast<char*>(mmap(nullptr, kMemoryBytes, PROT_NONE, MAP_SHARED, file, 0));
    host_ = static_cast<char*>(mmap(nullptr, kMemoryBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    if (device_ == MAP_FAILED || host_ == MAP_FAILED) Die("no memory");
    close(file);
    free_[0] = kMemoryBytes;
  }

  bool Owns(const void* data) const {
    const char* at = static_cast<const char*>(data);
    return at >= device_ && at < device_ + kMemoryBytes;
  }
  // Where the bytes of a device address can be touched.
  void* Touch(const void* data) const {
    if (!Owns(data)) Die("an operator was given memory of the host");
    return host_ + (static_cast<const char*>(data) - device_);
  }

  void* Allocate(size_t bytes) {
    const size_t size = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    std::lock_guard lock(mutex_);
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      const auto [offset, room] = *it;
      if (room < size) continue;
      free_.erase(it);
      if (room > size) free_[offset + size] = room - size;
      used_[offset] = {size, bytes};
      live_ += static_cast<int64_t>(bytes);
      peak_ = std::max(peak_, live_);
      std::memset(host_ + offset, 0xff, size);  // NaN: what is read before it is written shows
      return device_ + offset;
    }
    Die("out of memory");
  }

  void Free(void* data) {
    if (data == nullptr) return;
    std::lock_guard lock(mutex_);
    size_t offset = static_cast<size_t>(static_cast<char*>(data) - device_);
    const auto used = used_.find(offset);
    if (used == used_.end()) Die("freed twice");
    size_t size = used->second.first;
    live_ -= static_cast<int64_t>(used->second.second);
    used_.erase(used);
    auto next = free_.lower_bound(offset);
    if (next != free_.end() && next->first == offset + size) {
      size += next->second;
      next = free_.erase(next);
    }
    if (next != free_.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == offset) {
        before->second += size;
        return;
      }
    }
    free_[offset] = size;
  }

  std::pair<int64_t, int64_t> LiveAndPeak() {
    std::lock_guard lock(mutex_);
    return {live_, peak_};
  }
  void ResetPeak() {
    std::lock_guard lock(mutex_);
    peak_ = live_;
  }

 private:
  char* device_;
  char* host_;
  std::mutex mutex_;
  std::map<size_t, size_t> free_;
  std::map<size_t, std::pair<size_t, size_t>> used_;  // by offset: rounded and asked for
  int64_t live_ = 0, peak_ = 0;
};

Memory& TheMemory() {
  static Memory& memory = *new Memory;
  return memory;
}

int g_ordinal = 0;

class Allocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* data = bytes == 0 ? nullptr : TheMemory().Allocate(bytes);
    return {data, data, &Delete, c10::Device(kType, static_cast<c10::DeviceIndex>(g_ordinal))};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Delete; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(TheMemory().Touch(to), TheMemory().Touch(from), bytes);
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    const auto [live, peak] = TheMemory().LiveAndPeak();
    stats.allocated_bytes[0].current = live;
    stats.allocated_bytes[0].peak = peak;
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override { TheMemory().ResetPeak(); }

 private:
  static void Delete(void* data) { TheMemory().Free(data); }
};

Allocator g_allocator;
REGISTER_ALLOCATOR(kType, &g_allocator);

// ---- streams: everything is done when it is queued -----------------------------------------------

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device) const override { return getDevice(); }
  c10::Device getDevice() const override { return {kType, static_cast<c10::DeviceIndex>(g_ordinal)}; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::UNSAFE, device, t_stream);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    static std::atomic<c10::StreamId> next{1};
    return c10::Stream(c10::Stream::UNSAFE, device, next++);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = getStream(stream.device());
    t_stream = stream.id();
    return before;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }
  void destroyEvent(void*, c10::DeviceIndex) const noexcept override {}
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag) const override {
    *event = reinterpret_cast<void*>(stream.id() + 1);
  }
  void block(void* event, const c10::Stream&) const override {
    if (event == nullptr) Die("a stream waits for an event that was never recorded");
  }
  bool queryEvent(void*) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}

 private:
  static thread_local c10::StreamId t_stream;
};
thread_local c10::StreamId Guard::t_stream = 0;
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  bool isAvailable() const override { return true; }
  at::Allocator* getPinnedMemoryAllocator() const override { return c10::GetAllocator(c10::kCPU); }
  bool isPinnedPtr(const void*) const override { return true; }
};

// ---- ATen -----------------------------------------------------------------------------------------

at::Tensor EmptyMemoryFormat(c10::IntArrayRef size, std::optional<at::ScalarType> dtype,
                             std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>,
                             std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &g_allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor EmptyStrided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                        std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, &g_allocator,
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(dtype));
}

// The same elements, where a CPU operator can touch them.
at::Tensor Touchable(const at::Tensor& x) {
  if (x.is_cpu() || x.numel() == 0) return x;
  return at::from_blob(TheMemory().Touch(x.data_ptr()), x.sizes(), x.strides(), at::TensorOptions(x.dtype()));
}

at::Tensor CopyFrom(const at::Tensor& from, const at::Tensor& to, bool) {
  if (to.numel() > 0) Touchable(to).copy_(Touchable(from));
  return to;
}

// For results whose size an operator finds out; their old content is not kept.
const at::Tensor& Resize(const at::Tensor& self, c10::IntArrayRef size, std::optional<at::MemoryFormat>) {
  at::TensorImpl* impl = self.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(size);
  c10::StorageImpl* storage = self.storage().unsafeGetStorageImpl();
  const size_t bytes = static_cast<size_t>(impl->numel()) * self.itemsize();
  if (storage->nbytes() < bytes) {
    storage->set_data_ptr_noswap(g_allocator.allocate(bytes));
    storage->set_nbytes(bytes);
  }
  return self;
}

at::Tensor CopyFromAndResize(const at::Tensor& from, const at::Tensor& to) {
  if (to.sizes() != from.sizes()) to.resize_(from.sizes());
  return CopyFrom(from, to, false);
}

void OnTheCpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&OnTheCpu>()); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", EmptyMemoryFormat);
  m.impl("empty_strided", EmptyStrided);
  m.impl("_copy_from", CopyFrom);
  m.impl("_copy_from_and_resize", CopyFromAndResize);
  m.impl("resize_", Resize);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("view", static_cast<at::Tensor (*)(const at::Tensor&, at::IntArrayRef)>(at::native::view));
  m.impl("_reshape_alias", [](const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
    return at::native::_reshape_alias(self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride));
  });
}

// ---- operators ------------------------------------------------------------------------------------

template <typename T>
T Translated(T x) {
  if constexpr (std::is_pointer_v<T>) {
    return x == nullptr ? x : static_cast<T>(TheMemory().Touch(x));
  } else {
    return x;
  }
}

// The CPU's function of the same name, on addresses that it can touch.
template <auto kTable, auto kMember, typename Function>
struct OnDevice;
template <auto kTable, auto kMember, typename... Args>
struct OnDevice<kTable, kMember, void (*)(Args...)> {
  static void Run(Args... args) { (kTable().*kMember)(Translated(args)...); }
};
template <auto kTable, auto kMember>
constexpr auto kOnDevice = OnDevice<kTable, kMember, std::remove_cvref_t<decltype(kTable().*kMember)>>::Run;

const TypedKernels& CpuFloats() { return trainctl::kernels::Cpu().f32; }
const TypedKernels& CpuBf16() { return trainctl::kernels::Cpu().bf16; }

template <auto kTable>
constexpr TypedKernels Typed() {
  return {.embedding = kOnDevice<kTable, &TypedKernels::embedding>,
          .embedding_backward = kOnDevice<kTable, &TypedKernels::embedding_backward>,
          .rms_norm = kOnDevice<kTable, &TypedKernels::rms_norm>,
          .rms_norm_backward = kOnDevice<kTable, &TypedKernels::rms_norm_backward>,
          .rope = kOnDevice<kTable, &TypedKernels::rope>,
          .swiglu = kOnDevice<kTable, &TypedKernels::swiglu>,
          .swiglu_backward = kOnDevice<kTable, &TypedKernels::swiglu_backward>,
          .add = kOnDevice<kTable, &TypedKernels::add>,
          .add_bias = kOnDevice<kTable, &TypedKernels::add_bias>,
          .bias_gradient = kOnDevice<kTable, &TypedKernels::bias_gradient>,
          .accumulate = kOnDevice<kTable, &TypedKernels::accumulate>,
          .assign = kOnDevice<kTable, &TypedKernels::assign>,
          .from_float = kOnDevice<kTable, &TypedKernels::from_float>,
          .cross_entropy = kOnDevice<kTable, &TypedKernels::cross_entropy>};
}

void AdamW(float* master, float* exp_avg, float* exp_avg_sq, const float* gradient,
           const AdamWOptions& options, int64_t count) {
  trainctl::kernels::Cpu().adamw(Translated(master), Translated(exp_avg), Translated(exp_avg_sq),
                                 Translated(gradient), options, count);
}

void SumInOrder(float* out, const float* const* inputs, int num_inputs, int64_t count) {
  std::vector<const float*> translated;
  for (int i = 0; i < num_inputs; ++i) translated.push_back(Translated(inputs[i]));
  trainctl::kernels::Cpu().sum_in_order(Translated(out), translated.data(), num_inputs, count);
}

constexpr Kernels kKernels = {.name = "test",
                              .f32 = Typed<CpuFloats>(),
                              .bf16 = Typed<CpuBf16>(),
                              .adamw = AdamW,
                              .sum_of_squares = kOnDevice<trainctl::kernels::Cpu, &Kernels::sum_of_squares>,
                              .sum_in_order = SumInOrder};

// ---- collectives ----------------------------------------------------------------------------------

class Backend final : public c10d::Backend {
 public:
  Backend(c10::intrusive_ptr<c10d::Backend> gloo, int rank, int size)
      : c10d::Backend(rank, size), gloo_(std::move(gloo)) {}
  const std::string getBackendName() const override { return "test"; }
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& out, at::Tensor& in,
                                                 const c10d::AllgatherOptions& options) override {
    // Gloo wants its input apart from its output.
    at::Tensor whole = Touchable(out), own = Touchable(in).clone();
    auto work = gloo_->_allgather_base(whole, own, options);
    work->wait();
    return work;
  }
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor& out, at::Tensor& in,
                                                      const c10d::ReduceScatterOptions&) override {
    // Gloo's own takes other element types than ours at some sizes: a sum of everything, and one's part.
    std::vector<at::Tensor> all = {Touchable(in).clone()};
    auto work = gloo_->allreduce(all);
    work->wait();
    Touchable(out).copy_(all[0].narrow(0, getRank() * out.numel(), out.numel()));
    return work;
  }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override {
    std::vector<at::Tensor> touchable = {Touchable(tensors[0])};
    auto work = gloo_->allreduce(touchable, options);
    work->wait();
    return work;
  }

 private:
  c10::intrusive_ptr<c10d::Backend> gloo_;
};

void* MakeBackend(void* store, int rank, int world_size, int64_t timeout_ms, char* reason,
                  size_t reason_bytes) {
  try {
    auto shared =
        c10::intrusive_ptr<c10d::Store>::unsafe_reclaim_from_nonowning(static_cast<c10d::Store*>(store));
    auto gloo = trainctl::comm::MakeGlooBackend(shared, rank, world_size, absl::Milliseconds(timeout_ms));
    return c10::make_intrusive<Backend>(std::move(gloo), rank, world_size).release();
  } catch (const std::exception& error) {
    std::snprintf(reason, reason_bytes, "%s", error.what());
    return nullptr;
  }
}

// ---- the table ------------------------------------------------------------------------------------

int CountDevices(int* count, char* reason, size_t reason_bytes) {
  if (const char* refusal = std::getenv("TRAINCTL_TEST_DEVICE_REFUSES"); refusal != nullptr) {
    std::snprintf(reason, reason_bytes, "%s", refusal);
    return 1;
  }
  *count = kDevices;
  return 0;
}

int Open(int ordinal, DeviceProperties* properties, char*, size_t) {
  g_ordinal = ordinal;
  c10::register_privateuse1_backend("test");
  static Hooks& hooks = *new Hooks;
  at::RegisterPrivateUse1HooksInterface(&hooks);
  std::snprintf(properties->name, sizeof(properties->name), "test device");
  properties->memory_bytes = static_cast<int64_t>(kMemoryBytes);
  return 0;
}

int TakeError(char*, size_t) { return 0; }

}  // namespace

extern "C" __attribute__((visibility("default"))) const DeviceApi* trainctl_device_api() {
  static const DeviceApi api = {.abi = trainctl::kernels::kDeviceAbi,
                                .table_bytes = sizeof(DeviceApi),
                                .name = "test",
                                .torch_version = TORCH_VERSION,
                                .toolkit = "none",
                                .architectures = "none",
                                .torch_device_type = static_cast<int32_t>(kType),
                                .count_devices = CountDevices,
                                .open = Open,
                                .kernels = &kKernels,
                                .take_error = TakeError,
                                .make_backend = MakeBackend};
  return &api;
}
