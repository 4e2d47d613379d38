// A device that computes nothing and counts what it is asked for, so that a step of a model of any size takes
// a moment: launches by name with the bytes of their operands, waits of the host, allocations. Its memory is
// address space alone: who touches it, host or operator, dies. A copy to the host brings zeros.
//
// Attention is one launch, as cuDNN's and flash attention are. An operator of LibTorch that is not below ends
// the process: it would be a launch that nobody counts.

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <sys/mman.h>
#include <torch/headeronly/version.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>

#include "device/aten.h"
#include "kernels/device_api.h"
#include "tests/device/counts.h"
#include "tests/device/plugin_tensors.h"

namespace {

using trainctl::kernels::Activation;
using trainctl::kernels::DeviceApi;
using trainctl::kernels::DeviceProperties;
using trainctl::kernels::Gain;
using trainctl::kernels::Kernels;
using trainctl::kernels::kNumUpdateRules;
using trainctl::kernels::MasterKernels;
using trainctl::kernels::RopePairs;
using trainctl::kernels::TypedKernels;
using trainctl::kernels::UpdateFunction;
using trainctl::kernels::UpdateOptions;
using trainctl::kernels::UpdateRange;
using trainctl::test_device::IsPinned;
using trainctl::test_device::kAllocation;
using trainctl::test_device::kAttention;
using trainctl::test_device::kBlocking;
using trainctl::test_device::kProduct;
using trainctl::test_device::PinnedMemory;

constexpr at::DeviceType kType = at::DeviceType::PrivateUse1;
constexpr int64_t kMemoryBytes = int64_t{80} << 30;

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "counting device: %s\n", what.c_str());
  std::abort();
}

// ---- what is counted ------------------------------------------------------------------------------

struct Sums {
  int64_t calls = 0, bytes = 0;
};
std::mutex g_mutex;
std::map<std::string, Sums>& Counts() {
  static auto& counts = *new std::map<std::string, Sums>;
  return counts;
}

void Add(const char* name, int64_t bytes) {
  std::lock_guard lock(g_mutex);
  Sums& sums = Counts()[name];
  ++sums.calls;
  sums.bytes += bytes;
}

int64_t BytesOf(const at::Tensor& tensor) { return tensor.numel() * tensor.itemsize(); }

// ---- memory ---------------------------------------------------------------------------------------

class Allocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &Delete, c10::Device(kType, 0)};
    void* const data = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) Die("no address space");
    Add(kAllocation, static_cast<int64_t>(bytes));
    std::lock_guard lock(g_mutex);
    Blocks()[data] = bytes;
    live_ += static_cast<int64_t>(bytes);
    peak_ = std::max(peak_, live_);
    return {data, data, &Delete, c10::Device(kType, 0)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Delete; }
  void copy_data(void*, const void*, size_t bytes) const override {
    Add("copy", 2 * static_cast<int64_t>(bytes));
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override {
    std::lock_guard lock(g_mutex);
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocated_bytes[0].current = live_;
    stats.allocated_bytes[0].peak = peak_;
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {
    std::lock_guard lock(g_mutex);
    peak_ = live_;
  }

 private:
  static std::map<void*, size_t>& Blocks() {
    static auto& blocks = *new std::map<void*, size_t>;
    return blocks;
  }
  static void Delete(void* data) {
    if (data == nullptr) return;
    std::lock_guard lock(g_mutex);
    const auto block = Blocks().find(data);
    if (block == Blocks().end()) Die("freed twice");
    live_ -= static_cast<int64_t>(block->second);
    munmap(data, block->second);
    Blocks().erase(block);
  }

  static inline int64_t live_ = 0, peak_ = 0;
};

Allocator g_allocator;
REGISTER_ALLOCATOR(kType, &g_allocator);

// ---- LibTorch's view of the streams: all work is done at once --------------------------------------

thread_local c10::StreamId t_stream = 0;

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device) const override { return getDevice(); }
  c10::Device getDevice() const override { return {kType, 0}; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::UNSAFE, device, t_stream);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return c10::Stream(c10::Stream::UNSAFE, device, 1);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = getStream(stream.device());
    t_stream = stream.id();
    return before;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void destroyEvent(void*, c10::DeviceIndex) const noexcept override {}
  void record(void** event, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {
    *event = &g_allocator;  // of the past
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
  void synchronizeStream(const c10::Stream&) const override { Add(kBlocking, 0); }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  bool isAvailable() const override { return true; }
  at::Allocator* getPinnedMemoryAllocator() const override { return PinnedMemory(); }
  bool isPinnedPtr(const void* data) const override { return IsPinned(data); }
};

// ---- ATen -----------------------------------------------------------------------------------------

// Between the device and memory of the host both ways wait, unless that is pinned and the host asked not to.
at::Tensor CopyFrom(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  if (to.numel() == 0) return to;
  const bool leaves = to.is_cpu(), arrives = from.is_cpu();
  if (leaves) std::memset(to.data_ptr(), 0, static_cast<size_t>(BytesOf(to)));
  if ((leaves || arrives) && !(non_blocking && IsPinned((leaves ? to : from).const_data_ptr())))
    Add(kBlocking, 0);
  Add(leaves ? "copy to host" : arrives ? "copy to device" : "copy", BytesOf(from) + BytesOf(to));
  return to;
}

at::Tensor& Zero(at::Tensor& self) {
  if (self.numel() > 0) Add("zero", BytesOf(self));
  return self;
}

// `reads_out`: it adds to what is there.
void AddProduct(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out, bool reads_out) {
  if (out.dim() != 2 || out.size(0) != a.size(0) || out.size(1) != b.size(1))
    Die("a product of another size");
  Add(kProduct, BytesOf(a) + BytesOf(b) + (reads_out ? 2 : 1) * BytesOf(out));
}

at::Tensor& Product(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
  AddProduct(a, b, out, false);
  return out;
}

at::Tensor& ProductOnTop(at::Tensor& self, const at::Tensor& a, const at::Tensor& b, const at::Scalar&,
                         const at::Scalar&) {
  AddProduct(a, b, self, true);
  return self;
}

at::Tensor& ProductInFp32(const at::Tensor& a, const at::Tensor& b, at::ScalarType, at::Tensor& out) {
  AddProduct(a, b, out, false);
  return out;
}

at::Tensor& ProductOnTopInFp32(const at::Tensor&, const at::Tensor& a, const at::Tensor& b, at::ScalarType,
                               const at::Scalar&, const at::Scalar&, at::Tensor& out) {
  AddProduct(a, b, out, true);
  return out;
}

// Attention's results lie as its queries do, as those of LibTorch's kernels for CUDA.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> FlashForward(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::optional<at::Tensor>&,
    const std::optional<at::Tensor>&, c10::SymInt, c10::SymInt, double, bool, bool, std::optional<double>,
    std::optional<c10::SymInt>, std::optional<c10::SymInt>, const std::optional<at::Tensor>&,
    const std::optional<at::Tensor>&) {
  at::Tensor out = at::empty_like(q, at::MemoryFormat::Contiguous);
  at::Tensor lse = at::empty({q.size(1), q.size(0)}, q.options().dtype(at::kFloat));
  Add(kAttention, BytesOf(q) + BytesOf(k) + BytesOf(v) + BytesOf(out) + BytesOf(lse));
  return {out, lse, at::Tensor(), at::Tensor(), at::Tensor()};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> GradientsOfHeads(const at::Tensor& q, const at::Tensor& k,
                                                                const at::Tensor& v) {
  Add(kAttention, 4 * BytesOf(q) + 2 * BytesOf(k) + 2 * BytesOf(v));
  return {at::empty_like(q), at::empty_like(k), at::empty_like(v)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> FlashBackward(
    const at::Tensor&, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor&,
    const at::Tensor&, const at::Tensor&, const at::Tensor&, c10::SymInt, c10::SymInt, double, bool,
    const at::Tensor&, const at::Tensor&, std::optional<double>, std::optional<c10::SymInt>,
    std::optional<c10::SymInt>) {
  return GradientsOfHeads(q, k, v);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt, at::Tensor, at::Tensor,
           at::Tensor>
CudnnForward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::optional<at::Tensor>&,
             bool, double, bool, bool, std::optional<double>) {
  at::Tensor out = at::empty_like(q);  // [batch, heads, seq, head_dim], strides in the order of q's
  at::Tensor lse = at::empty({q.size(0), q.size(1), q.size(2), 1}, q.options().dtype(at::kFloat));
  Add(kAttention, BytesOf(q) + BytesOf(k) + BytesOf(v) + BytesOf(out) + BytesOf(lse));
  return {out, lse, at::Tensor(), at::Tensor(), 0, 0, at::Tensor(), at::Tensor(), at::Tensor()};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> CudnnBackward(
    const at::Tensor&, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor&,
    const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
    const at::Tensor&, c10::SymInt, c10::SymInt, double, bool, std::optional<double>) {
  return GradientsOfHeads(q, k, v);
}

void Uncounted(const c10::OperatorHandle& op, torch::jit::Stack*) {
  Die("nothing counts " + c10::toString(op.operator_name()));
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&Uncounted>()); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  trainctl::test_device::RegisterTensors(m);
  m.impl("_copy_from", CopyFrom);
  m.impl("zero_", Zero);
  m.impl("mm.out", Product);
  m.impl("addmm_", ProductOnTop);
  m.impl("mm.dtype_out", ProductInFp32);
  m.impl("addmm.dtype_out", ProductOnTopInFp32);
  m.impl("_flash_attention_forward", FlashForward);
  m.impl("_flash_attention_backward", FlashBackward);
  m.impl("_scaled_dot_product_cudnn_attention", CudnnForward);
  m.impl("_cudnn_attention_backward", CudnnBackward);
}

// ---- operators ------------------------------------------------------------------------------------

constexpr int64_t kFp64 = 8, kFp32 = 4, kInt32 = 4;

// Bytes of each operand once; kElement: of an activation.
template <int64_t kElement>
constexpr TypedKernels Typed() {
  return {
      .embedding = [](void*, const void*, const int32_t*, int64_t n,
                      int64_t h) { Add("embedding", n * (2 * h * kElement + kInt32)); },
      .embedding_backward =
          [](void*, const void*, const int32_t*, int64_t n, int64_t h) {
            Add("embedding_backward", n * (h * (kElement + 2 * kFp32) + kInt32));
          },
      .rms_norm = [](void*, void*, const void*, const void*, Gain, float, int64_t n,
                     int64_t h) { Add("rms_norm", (2 * n + 1) * h * kElement + n * kFp32); },
      .add_rms_norm = [](void*, void*, void*, const void*, const void*, Gain, float, int64_t n,
                         int64_t h) { Add("add_rms_norm", (4 * n + 1) * h * kElement + n * kFp32); },
      .rms_norm_backward =
          [](void*, void*, const void*, const void*, const void*, const void*, Gain, bool accumulate,
             int64_t n, int64_t h) {
            Add("rms_norm_backward",
                ((accumulate ? 4 : 3) * n + 1) * h * kElement + n * kFp32 + 2 * h * kFp32);
          },
      .rms_norm_heads =
          [](void*, void*, const void*, const void*, Gain, float, int64_t n, int64_t heads, int64_t d,
             int64_t,
             int64_t) { Add("rms_norm_heads", (2 * n * heads + 1) * d * kElement + n * heads * kFp32); },
      .rms_norm_heads_backward =
          [](void*, void*, const void*, const void*, const void*, const void*, Gain, int64_t n, int64_t heads,
             int64_t d, int64_t, int64_t) {
            Add("rms_norm_heads_backward",
                (3 * n * heads + 1) * d * kElement + n * heads * kFp32 + 2 * d * kFp32);
          },
      .layer_norm = [](void*, void*, void*, const void*, const void*, const void*, Gain, float, int64_t n,
                       int64_t h) { Add("layer_norm", (2 * n + 2) * h * kElement + 2 * n * kFp32); },
      .layer_norm_backward =
          [](void*, void*, void*, const void*, const void*, const void*, const void*, const void*, Gain,
             bool accumulate, int64_t n, int64_t h) {
            Add("layer_norm_backward",
                ((accumulate ? 5 : 4) * n + 1) * h * kElement + 2 * n * kFp32 + 4 * h * kFp32);
          },
      .rope =
          [](void*, const int32_t*, const float*, const float*, float, RopePairs, int64_t n, int64_t heads,
             int64_t, int64_t rotated,
             int64_t) { Add("rope", 2 * n * heads * rotated * kElement + n * (kInt32 + rotated * kFp32)); },
      .join_heads =
          [](void*, const void*, const void*, const void*, const int32_t*, const float*, const float*,
             int64_t n, int64_t heads, int64_t kv_heads, int64_t d) {
            Add("join_heads", 2 * n * (heads + 2 * kv_heads) * d * kElement + n * (kInt32 + d * kFp32));
          },
      .gated_activation = [](void*, const void*, Activation, int64_t n,
                             int64_t f) { Add("gated_activation", 3 * n * f * kElement); },
      .gated_activation_backward = [](void*, const void*, const void*, Activation, int64_t n,
                                      int64_t f) { Add("gated_activation_backward", 5 * n * f * kElement); },
      .activation = [](void*, const void*, Activation,
                       int64_t count) { Add("activation", 2 * count * kElement); },
      .activation_backward = [](void*, const void*, const void*, Activation,
                                int64_t count) { Add("activation_backward", 3 * count * kElement); },
      .scale = [](void*, const void*, float, int64_t count) { Add("scale", 2 * count * kElement); },
      .add = [](void*, const void*, int64_t count) { Add("add", 3 * count * kElement); },
      .add_bias = [](void*, const void*, int64_t n,
                     int64_t cols) { Add("add_bias", (2 * n + 1) * cols * kElement); },
      .bias_gradient = [](void*, const void*, int64_t n,
                          int64_t cols) { Add("bias_gradient", n * cols * kElement + 2 * cols * kFp32); },
      .accumulate = [](void*, const void*,
                       int64_t count) { Add("accumulate", count * (kElement + 2 * kFp32)); },
      .assign = [](void*, const void*, int64_t count) { Add("assign", count * (kElement + kFp32)); },
      .round = [](void*, const void*, int64_t count) { Add("round", count * (kElement + kFp32)); },
      .cross_entropy =
          [](double*, void*, const int32_t*, const uint8_t*, float, float, const float* scale, int64_t n,
             int64_t vocab) {
            Add("cross_entropy", (scale != nullptr ? 2 : 1) * n * vocab * kElement + n * (kInt32 + 1));
          },
  };
}

template <int kMasterBytes>
void Update(const UpdateRange* ranges, int num_ranges, const UpdateOptions*) {
  int64_t bytes = sizeof(UpdateOptions);
  for (int i = 0; i < num_ranges; ++i) {
    int64_t kept = 0;
    for (const void* state : ranges[i].states) kept += state != nullptr;
    const int64_t bf16 = ranges[i].copy != nullptr ? 2 : 0;
    // The gradient is read, master and states are written too.
    bytes += ranges[i].count * (kFp32 * (1 + 2 * kept) + 2 * kMasterBytes + bf16);
  }
  Add("update", bytes);
}

void SumOfSquares(double*, const UpdateRange* ranges, int num_ranges) {
  int64_t bytes = 0;
  for (int i = 0; i < num_ranges; ++i) bytes += ranges[i].count * kFp32;
  Add("sum_of_squares", bytes);
}

template <int kMasterBytes>
constexpr MasterKernels Masters() {
  MasterKernels masters = {.sum_of_squares = SumOfSquares,
                           .clip_factor = [](float*, const double*, const double*, double) {
                             Add("clip_factor", kFp32 + 2 * kFp64);
                           }};
  masters.update.fill(Update<kMasterBytes>);
  return masters;
}

constexpr Kernels kKernels = {.name = "counting",
                              .f32 = Typed<4>(),
                              .bf16 = Typed<2>(),
                              .masters_f32 = Masters<4>(),
                              .masters_bf16 = Masters<2>(),
                              .sum_in_order = [](float*, const float* const*, int num_inputs, int64_t count) {
                                Add("sum_in_order", (num_inputs + 1) * count * kFp32);
                              }};

// ---- the table ------------------------------------------------------------------------------------

int CountDevices(int* count, char*, size_t) {
  *count = 1;
  return 0;
}

int Open(int, DeviceProperties* properties, char*, size_t) {
  c10::register_privateuse1_backend("counting");
  static Hooks& hooks = *new Hooks;
  at::RegisterPrivateUse1HooksInterface(&hooks);
  std::snprintf(properties->name, sizeof(properties->name), "counting device");
  properties->memory_bytes = kMemoryBytes;
  return 0;
}

int TakeError(char*, size_t) { return 0; }

void* MakeBackend(void*, int, int, int64_t, int, char* reason, size_t reason_bytes) {
  std::snprintf(reason, reason_bytes, "the counting device is alone");
  return nullptr;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int trainctl_counts(trainctl::test_device::Count* counts,
                                                                      int room) {
  std::lock_guard lock(g_mutex);
  int at = 0;
  for (const auto& [name, sums] : Counts()) {
    if (at < room) counts[at] = {name.c_str(), sums.calls, sums.bytes};
    ++at;
  }
  return at;
}

extern "C" __attribute__((visibility("default"))) const DeviceApi* trainctl_device_api() {
  static const DeviceApi api = {.abi = trainctl::kernels::kDeviceAbi,
                                .table_bytes = sizeof(DeviceApi),
                                .name = "counting",
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
