// A device for tests where there is none: its memory is this process's, but seen at addresses that nobody may
// touch, so that host code that reads or writes device memory dies at once. Its operators are the CPU's, its
// collectives Gloo's. A plugin like any other (kernels/device_api.h).
//
// Every allocation lies in one file of memory that is mapped twice: without any right at the addresses that
// tensors have, and readable and writable at a fixed distance, which only this file knows.
//
// Work is done by the streams' own threads, behind the caller's back (late_streams.h).
// TRAINCTL_TEST_DEVICE_LATE is "compute" or "communication": those streams do nothing before somebody waits
// for them. Freed memory is given again to the stream that it was allocated on, as LibTorch's allocator for
// GPUs does, whether or not another one is done with it that was not named. Operators that have no function
// below wait for their stream and run at once.

#include <ATen/Parallel.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <sys/mman.h>
#include <torch/headeronly/version.h>
#include <torch/library.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <source_location>
#include <string>
#include <string_view>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <tuple>
#include <utility>
#include <vector>

#include "comm/gloo_backend.h"
#include "device/aten.h"
#include "device/error_text.h"
#include "kernels/device_api.h"
#include "tests/device/flash_attention.h"
#include "tests/device/late_streams.h"
#include "tests/device/plugin_tensors.h"

namespace {

using trainctl::kernels::DeviceApi;
using trainctl::kernels::DeviceProperties;
using trainctl::kernels::Kernels;
using trainctl::kernels::kNumUpdateRules;
using trainctl::kernels::MasterKernels;
using trainctl::kernels::TypedKernels;
using trainctl::kernels::UpdateFunction;
using trainctl::kernels::UpdateOptions;
using trainctl::kernels::UpdateRange;
using trainctl::test_device::FlashOptions;
using trainctl::test_device::ForFlashDocuments;
using trainctl::test_device::IsPinned;
using trainctl::test_device::Mark;
using trainctl::test_device::PinnedMemory;
using trainctl::test_device::Queue;

constexpr at::DeviceType kType = at::DeviceType::PrivateUse1;
constexpr int kDevices = 8;
constexpr size_t kMemoryBytes = size_t{1} << 30;
constexpr size_t kAlignment = 512;

[[noreturn]] void Die(const char* what) {
  std::fprintf(stderr, "test device: %s\n", what);
  std::abort();
}

// ---- streams --------------------------------------------------------------------------------------

// The first failure of something queued; the next who asks hears of it.
std::mutex g_error_mutex;
std::string g_error;

// From the first kernel that failed on, a GPU answers nothing else.
std::atomic<bool> g_is_broken{false};
void RequireWhole() { TORCH_CHECK(!g_is_broken, "a kernel failed"); }

// Whether a function is that name's, or of a template that was given it.
bool Names(std::string_view function, std::string_view name) {
  const auto is_part = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  for (size_t at = function.find(name); at != std::string_view::npos; at = function.find(name, at + 1)) {
    const size_t end = at + name.size();
    if ((at == 0 || !is_part(function[at - 1])) && (end == function.size() || !is_part(function[end])))
      return true;
  }
  return false;
}

// TRAINCTL_TEST_DEVICE_FAILS_AT=N: the N-th kernel of the process fails so; NAME:N: the N-th of that name.
bool FailsNow(std::string_view function) {
  static const char* const chosen = std::getenv("TRAINCTL_TEST_DEVICE_FAILS_AT");
  if (chosen == nullptr) return false;
  static const std::string_view text = chosen;
  static const size_t colon = text.find(':');
  static std::atomic<int64_t> left{std::atoll(chosen + (colon == std::string_view::npos ? 0 : colon + 1))};
  return (colon == std::string_view::npos || Names(function, text.substr(0, colon))) && --left == 0;
}

std::function<void()> Guarded(std::function<void()> work) {
  return [work = std::move(work)] {
    try {
      work();
    } catch (const std::exception& error) {
      std::lock_guard lock(g_error_mutex);
      if (g_error.empty()) g_error = trainctl::device::ErrorText(error);
    }
  };
}

enum class Role { kCompute, kCommunication };

std::shared_ptr<Queue> MakeQueue(Role role) {
  const char* late = std::getenv("TRAINCTL_TEST_DEVICE_LATE");
  const std::string mine = role == Role::kCompute ? "compute" : "communication";
  const int threads = at::get_num_threads();
  return std::make_shared<Queue>(late != nullptr && late == mine,
                                 [threads] { at::set_num_threads(threads); });
}

// 0 is the default stream, 1 the first one that was asked for: the trainer's compute stream. A GPU has as
// few.
constexpr c10::StreamId kStreams = 32;

std::shared_ptr<Queue> QueueOf(c10::StreamId stream) {
  static std::mutex& mutex = *new std::mutex;
  static auto& queues = *new std::array<std::shared_ptr<Queue>, kStreams>;
  std::lock_guard lock(mutex);
  std::shared_ptr<Queue>& queue = queues[static_cast<size_t>(stream)];
  if (queue == nullptr) queue = MakeQueue(stream <= 1 ? Role::kCompute : Role::kCommunication);
  return queue;
}

thread_local c10::StreamId t_stream = 0;

std::shared_ptr<Queue> Current() { return QueueOf(t_stream); }

// What a graph does; its memory is given to nobody else.
struct Graph {
  std::vector<std::function<void()>> work;
  c10::StreamId pool;
};
// That which the thread is making.
thread_local Graph* t_graph = nullptr;

// In a graph there is work of one stream alone, and nobody can wait for what is only kept.
void RequireNoGraph(const char* what) {
  if (t_graph != nullptr) Die(what);
}

// TRAINCTL_TEST_DEVICE_SLOW=NAME: each kernel of that name takes 20 ms more.
void TakeTime(std::string_view function) {
  static const char* const slow = std::getenv("TRAINCTL_TEST_DEVICE_SLOW");
  if (slow != nullptr && Names(function, slow)) std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

void OnStream(std::function<void()> work, std::source_location caller = std::source_location::current()) {
  std::function<void()> guarded = Guarded([work = std::move(work), caller] {
    if (FailsNow(caller.function_name())) g_is_broken = true;
    RequireWhole();
    TakeTime(caller.function_name());
    work();
  });
  if (t_graph != nullptr) return t_graph->work.push_back(std::move(guarded));
  Current()->Add(std::move(guarded));
}
void FinishStream() {
  RequireNoGraph("the host waits for a stream while a graph is made of it");
  const std::shared_ptr<Queue> queue = Current();
  queue->Reach(queue->End());
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
    char* host = nullptr;
    {
      std::lock_guard lock(mutex_);
      const c10::StreamId owner = t_graph != nullptr ? t_graph->pool : t_stream;
      const size_t offset = Take(owner, size);
      used_[offset] = {size, bytes, owner};
      live_ += static_cast<int64_t>(bytes);
      peak_ = std::max(peak_, live_);
      host = host_ + offset;
    }
    // NaN: what is read before it is written shows. In its turn: what had this memory before may still be at
    // it.
    const std::shared_ptr<Queue> queue = Current();
    if (t_graph == nullptr && queue->IsDone(queue->End())) {
      std::memset(host, 0xff, size);
    } else {
      OnStream([host, size] { std::memset(host, 0xff, size); });
    }
    return device_ + (host - host_);
  }

  // Of memory at or behind the begin of what was allocated.
  void UsedBy(const void* data, c10::StreamId stream) {
    if (data == nullptr) return;
    std::lock_guard lock(mutex_);
    const auto behind = used_.upper_bound(static_cast<size_t>(static_cast<const char*>(data) - device_));
    if (behind == used_.begin()) Die("a stream uses what is free");
    Block& block = std::prev(behind)->second;
    if (block.stream != stream) block.users.insert(stream);
  }

  void Free(void* data) {
    if (data == nullptr) return;
    std::lock_guard lock(mutex_);
    const size_t offset = static_cast<size_t>(static_cast<char*>(data) - device_);
    const auto used = used_.find(offset);
    if (used == used_.end()) Die("freed twice");
    const Block block = std::move(used->second);
    live_ -= static_cast<int64_t>(block.bytes);
    used_.erase(used);
    if (block.users.empty()) return GiveBack(block.stream, offset, block.size);
    Leaving& leaving = leaving_.emplace_back(Leaving{block.stream, offset, block.size, {}});
    for (const c10::StreamId user : block.users) leaving.until.push_back(Mark::BehindAllOf(QueueOf(user)));
  }

  // Whether all that was allocated for a stream, or a graph, is free.
  bool IsFree(c10::StreamId owner) {
    std::lock_guard lock(mutex_);
    return std::none_of(used_.begin(), used_.end(),
                        [&](const auto& used) { return used.second.stream == owner; });
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
  struct Block {
    size_t size = 0;  // rounded
    size_t bytes = 0;
    c10::StreamId stream = 0;
    std::set<c10::StreamId> users = {};  // others
  };
  // Free, but others than its stream are at work on it.
  struct Leaving {
    c10::StreamId stream = 0;
    size_t offset = 0, size = 0;
    std::vector<Mark> until;
  };

  void GiveBack(c10::StreamId stream, size_t offset, size_t size) {
    std::map<size_t, size_t>& free = free_[stream];
    auto next = free.lower_bound(offset);
    if (next != free.end() && next->first == offset + size) {
      size += next->second;
      next = free.erase(next);
    }
    if (next != free.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == offset) {
        before->second += size;
        return;
      }
    }
    free[offset] = size;
  }

  void GiveBackWhatHasLeft() {
    std::erase_if(leaving_, [this](const Leaving& leaving) {
      for (const Mark& mark : leaving.until) {
        if (!mark.queue->IsDone(mark.position)) return false;
      }
      GiveBack(leaving.stream, leaving.offset, leaving.size);
      return true;
    });
  }

  // Where `size` bytes are free for a stream: of what it has given back, else never used.
  size_t Take(c10::StreamId stream, size_t size) {
    GiveBackWhatHasLeft();
    std::map<size_t, size_t>& free = free_[stream];
    for (auto it = free.begin(); it != free.end(); ++it) {
      const auto [offset, room] = *it;
      if (room < size) continue;
      free.erase(it);
      if (room > size) free[offset + size] = room - size;
      return offset;
    }
    if (kMemoryBytes - unused_ < size) Die("out of memory");
    return std::exchange(unused_, unused_ + size);
  }

  char* device_;
  char* host_;
  std::mutex mutex_;
  std::map<c10::StreamId, std::map<size_t, size_t>> free_;
  std::map<size_t, Block> used_;  // by offset
  std::vector<Leaving> leaving_;
  size_t unused_ = 0;  // from here on
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
    OnStream([to = TheMemory().Touch(to), from = TheMemory().Touch(from), bytes] {
      std::memcpy(to, from, bytes);
    });
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    TheMemory().UsedBy(data.get(), stream.id());
  }
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

// ---- LibTorch's view of the streams ----------------------------------------------------------------

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
    static std::atomic<c10::StreamId> asked{0};
    const c10::StreamId before = asked++;
    return c10::Stream(c10::Stream::UNSAFE, device, before == 0 ? 1 : 2 + (before - 1) % (kStreams - 2));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = getStream(stream.device());
    t_stream = stream.id();
    return before;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<Mark*>(event);
  }
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag) const override {
    RequireWhole();
    RequireNoGraph("an event is recorded while a graph is made");
    if (*event == nullptr) *event = new Mark;
    *static_cast<Mark*>(*event) = Mark::BehindAllOf(QueueOf(stream.id()));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr) Die("a stream waits for an event that was never recorded");
    RequireNoGraph("a stream waits for another one while a graph is made");
    RequireWhole();
    static_cast<Mark*>(event)->Hold(*QueueOf(stream.id()));
  }
  bool queryEvent(void* event) const override {
    const auto* mark = static_cast<Mark*>(event);
    return mark == nullptr || mark->queue->IsDone(mark->position);
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    g_allocator.recordStream(data, stream);
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    RequireNoGraph("the host waits for a stream while a graph is made");
    Mark::BehindAllOf(QueueOf(stream.id())).Reach();
    RequireWhole();
  }
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

// The same elements, where a CPU operator can touch them.
at::Tensor Touchable(const at::Tensor& x) {
  if (x.is_cpu() || x.numel() == 0) return x;
  return at::from_blob(TheMemory().Touch(x.data_ptr()), x.sizes(), x.strides(), at::TensorOptions(x.dtype()));
}

// The host waits for a copy from or to its memory, unless that is pinned and the host asked not to.
at::Tensor CopyFrom(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  if (to.numel() == 0) return to;
  const at::Tensor& host = from.is_cpu() ? from : to;
  if (host.is_cpu()) RequireNoGraph("a graph would copy from or to memory of the host");
  if (host.is_cpu() && !(non_blocking && IsPinned(host.const_data_ptr()))) {
    FinishStream();
    RequireWhole();
    Touchable(to).copy_(Touchable(from));
  } else {
    OnStream([from = Touchable(from), to = Touchable(to)] { to.copy_(from); });
  }
  return to;
}

at::Tensor& Zero(at::Tensor& self) {
  if (self.numel() > 0) OnStream([self = Touchable(self)] { self.zero_(); });
  return self;
}

at::Tensor& Product(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
  if (out.dim() != 2 || out.size(0) != a.size(0) || out.size(1) != b.size(1))
    Die("a product of another size");
  OnStream([a = Touchable(a), b = Touchable(b), out = Touchable(out)]() mutable {
    if (out.scalar_type() == at::kBFloat16) {
      out.copy_(at::mm(a.to(at::kFloat), b.to(at::kFloat)));  // many CPUs have no fast product of bf16
    } else {
      at::mm_out(out, a, b);
    }
  });
  return out;
}

at::Tensor& AddProduct(at::Tensor& self, const at::Tensor& a, const at::Tensor& b, const at::Scalar& beta,
                       const at::Scalar& alpha) {
  OnStream([self = Touchable(self), a = Touchable(a), b = Touchable(b), beta, alpha] {
    self.addmm_(a, b, beta, alpha);
  });
  return self;
}

// Of bf16 factors, with results in fp32, as devices have them and CPUs do not.
at::Tensor& ProductInFp32(const at::Tensor& a, const at::Tensor& b, at::ScalarType dtype, at::Tensor& out) {
  if (dtype != at::kFloat || out.scalar_type() != dtype) Die("a product whose result is not fp32");
  OnStream([a = Touchable(a), b = Touchable(b), out = Touchable(out)]() mutable {
    at::mm_out(out, a.to(at::kFloat), b.to(at::kFloat));
  });
  return out;
}

at::Tensor& AddProductInFp32(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b,
                             at::ScalarType dtype, const at::Scalar& beta, const at::Scalar& alpha,
                             at::Tensor& out) {
  if (dtype != at::kFloat || out.scalar_type() != dtype) Die("a product whose result is not fp32");
  OnStream([self = Touchable(self), a = Touchable(a), b = Touchable(b), out = Touchable(out), beta,
            alpha]() mutable { at::addmm_out(out, self, a.to(at::kFloat), b.to(at::kFloat), beta, alpha); });
  return out;
}

FlashOptions OptionsOf(std::optional<double> scale, const std::optional<c10::SymInt>& window_left,
                       const std::optional<c10::SymInt>& window_right) {
  if (window_right && window_right->expect_int() != 0) Die("a window that is not causal");
  FlashOptions options = {.scale = scale};
  if (window_left) options.window_left = window_left->expect_int();
  return options;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> FlashForward(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::optional<at::Tensor>& offsets,
    const std::optional<at::Tensor>&, c10::SymInt, c10::SymInt, double, bool, bool,
    std::optional<double> scale, std::optional<c10::SymInt> window_left,
    std::optional<c10::SymInt> window_right, const std::optional<at::Tensor>&,
    const std::optional<at::Tensor>&) {
  const FlashOptions options = OptionsOf(scale, window_left, window_right);
  at::Tensor out = at::empty_like(q, at::MemoryFormat::Contiguous);
  at::Tensor lse = at::empty({q.size(1), q.size(0)}, q.options().dtype(at::kFloat));
  OnStream([q = Touchable(q), k = Touchable(k), v = Touchable(v), offsets = Touchable(*offsets),
            out = Touchable(out), lse = Touchable(lse), options] {
    ForFlashDocuments(q, k, v, offsets, options, [&](const auto& document) { document.Forward(out, lse); });
  });
  return {out, lse, at::Tensor(), at::Tensor(), at::Tensor()};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> FlashBackward(
    const at::Tensor& dout, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const at::Tensor& out, const at::Tensor& lse, const at::Tensor& offsets, const at::Tensor&, c10::SymInt,
    c10::SymInt, double, bool, const at::Tensor&, const at::Tensor&, std::optional<double> scale,
    std::optional<c10::SymInt> window_left, std::optional<c10::SymInt> window_right) {
  const FlashOptions options = OptionsOf(scale, window_left, window_right);
  at::Tensor dq = at::empty_like(q), dk = at::empty_like(k), dv = at::empty_like(v);
  OnStream([dout = Touchable(dout), q = Touchable(q), k = Touchable(k), v = Touchable(v),
            out = Touchable(out), lse = Touchable(lse), offsets = Touchable(offsets), dq = Touchable(dq),
            dk = Touchable(dk), dv = Touchable(dv), options] {
    ForFlashDocuments(q, k, v, offsets, options,
                      [&](const auto& document) { document.Backward(dout, out, lse, dq, dk, dv); });
  });
  return {dq, dk, dv};
}

// cuDNN's has [batch, heads, seq, head_dim], a document for each sequence, and lse [batch, heads, seq, 1].
at::Tensor ByToken(const at::Tensor& x) { return x.transpose(1, 2).reshape({-1, x.size(1), x.size(3)}); }
at::Tensor EmptyBySequence(const at::Tensor& x) {
  return at::empty({x.size(0), x.size(2), x.size(1), x.size(3)}, x.options()).transpose(1, 2);
}
at::Tensor SequenceOffsets(const at::Tensor& q) {
  return at::arange(q.size(0) + 1, at::kInt).mul_(q.size(2));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt, at::Tensor, at::Tensor,
           at::Tensor>
CudnnForward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::optional<at::Tensor>&,
             bool, double, bool, bool, std::optional<double> scale) {
  at::Tensor out = EmptyBySequence(q);
  at::Tensor lse = at::empty({q.size(0), q.size(1), q.size(2), 1}, q.options().dtype(at::kFloat));
  OnStream([q = Touchable(q), k = Touchable(k), v = Touchable(v), out = Touchable(out), lse = Touchable(lse),
            options = FlashOptions{.scale = scale}] {
    const at::Tensor lse_by_head = at::empty({q.size(1), q.size(0) * q.size(2)});
    ForFlashDocuments(ByToken(q), ByToken(k), ByToken(v), SequenceOffsets(q), options,
                      [&](const auto& document) { document.Forward(ByToken(out), lse_by_head); });
    lse.copy_(lse_by_head.view({q.size(1), q.size(0), q.size(2), 1}).transpose(0, 1));
  });
  return {out, lse, at::Tensor(), at::Tensor(), 0, 0, at::Tensor(), at::Tensor(), at::Tensor()};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> CudnnBackward(const at::Tensor& dout, const at::Tensor& q,
                                                             const at::Tensor& k, const at::Tensor& v,
                                                             const at::Tensor& out, const at::Tensor& lse,
                                                             const at::Tensor&, const at::Tensor&,
                                                             const at::Tensor&, const at::Tensor&,
                                                             const at::Tensor&, c10::SymInt, c10::SymInt,
                                                             double, bool, std::optional<double> scale) {
  at::Tensor dq = EmptyBySequence(q), dk = EmptyBySequence(k), dv = EmptyBySequence(v);
  OnStream([dout = Touchable(dout), q = Touchable(q), k = Touchable(k), v = Touchable(v),
            out = Touchable(out), lse = Touchable(lse), dq = Touchable(dq), dk = Touchable(dk),
            dv = Touchable(dv), options = FlashOptions{.scale = scale}] {
    const at::Tensor lse_by_head = lse.squeeze(3).transpose(0, 1).reshape({q.size(1), -1});
    ForFlashDocuments(
        ByToken(q), ByToken(k), ByToken(v), SequenceOffsets(q), options, [&](const auto& document) {
          document.Backward(ByToken(dout), ByToken(out), lse_by_head, ByToken(dq), ByToken(dk), ByToken(dv));
        });
  });
  return {dq, dk, dv};
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

// Its copies to the host wait for the stream.
void OnTheCpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&OnTheCpu>()); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  trainctl::test_device::RegisterTensors(m);
  m.impl("_copy_from", CopyFrom);
  m.impl("_copy_from_and_resize", CopyFromAndResize);
  m.impl("resize_", Resize);
  m.impl("zero_", Zero);
  m.impl("mm.out", Product);
  m.impl("addmm_", AddProduct);
  m.impl("mm.dtype_out", ProductInFp32);
  m.impl("addmm.dtype_out", AddProductInFp32);
  m.impl("_flash_attention_forward", FlashForward);
  m.impl("_flash_attention_backward", FlashBackward);
  m.impl("_scaled_dot_product_cudnn_attention", CudnnForward);
  m.impl("_cudnn_attention_backward", CudnnBackward);
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
  static void Run(Args... args) {
    OnStream(
        [translated = std::make_tuple(Translated(args)...)] { std::apply(kTable().*kMember, translated); });
  }
};
template <auto kTable, auto kMember>
constexpr auto kOnDevice = OnDevice<kTable, kMember, std::remove_cvref_t<decltype(kTable().*kMember)>>::Run;

const TypedKernels& CpuFloats() { return trainctl::kernels::Cpu().f32; }
const TypedKernels& CpuBf16() { return trainctl::kernels::Cpu().bf16; }
const MasterKernels& CpuMasters() { return trainctl::kernels::Cpu().masters_f32; }
const MasterKernels& CpuBf16Masters() { return trainctl::kernels::Cpu().masters_bf16; }

template <auto kTable>
constexpr TypedKernels Typed() {
  return {.embedding = kOnDevice<kTable, &TypedKernels::embedding>,
          .embedding_backward = kOnDevice<kTable, &TypedKernels::embedding_backward>,
          .rms_norm = kOnDevice<kTable, &TypedKernels::rms_norm>,
          .add_rms_norm = kOnDevice<kTable, &TypedKernels::add_rms_norm>,
          .rms_norm_backward = kOnDevice<kTable, &TypedKernels::rms_norm_backward>,
          .rms_norm_heads = kOnDevice<kTable, &TypedKernels::rms_norm_heads>,
          .rms_norm_heads_backward = kOnDevice<kTable, &TypedKernels::rms_norm_heads_backward>,
          .layer_norm = kOnDevice<kTable, &TypedKernels::layer_norm>,
          .layer_norm_backward = kOnDevice<kTable, &TypedKernels::layer_norm_backward>,
          .rope = kOnDevice<kTable, &TypedKernels::rope>,
          .join_heads = kOnDevice<kTable, &TypedKernels::join_heads>,
          .gated_activation = kOnDevice<kTable, &TypedKernels::gated_activation>,
          .gated_activation_backward = kOnDevice<kTable, &TypedKernels::gated_activation_backward>,
          .activation = kOnDevice<kTable, &TypedKernels::activation>,
          .activation_backward = kOnDevice<kTable, &TypedKernels::activation_backward>,
          .scale = kOnDevice<kTable, &TypedKernels::scale>,
          .add = kOnDevice<kTable, &TypedKernels::add>,
          .add_bias = kOnDevice<kTable, &TypedKernels::add_bias>,
          .bias_gradient = kOnDevice<kTable, &TypedKernels::bias_gradient>,
          .accumulate = kOnDevice<kTable, &TypedKernels::accumulate>,
          .assign = kOnDevice<kTable, &TypedKernels::assign>,
          .round = kOnDevice<kTable, &TypedKernels::round>,
          .cross_entropy = kOnDevice<kTable, &TypedKernels::cross_entropy>};
}

std::vector<UpdateRange> TranslatedRanges(const UpdateRange* ranges, int num_ranges) {
  std::vector<UpdateRange> translated(ranges, ranges + num_ranges);
  for (UpdateRange& range : translated) {
    range.master = Translated(range.master);
    for (void*& state : range.states) state = Translated(state);
    range.gradient = Translated(range.gradient);
    range.copy = Translated(range.copy);
  }
  return translated;
}

template <auto kTable, size_t kRule>
void Update(const UpdateRange* ranges, int num_ranges, const UpdateOptions* options) {
  OnStream([translated = TranslatedRanges(ranges, num_ranges), options = Translated(options)] {
    kTable().update[kRule](translated.data(), static_cast<int>(translated.size()), options);
  });
}

void SumOfSquares(double* sum, const UpdateRange* ranges, int num_ranges) {
  OnStream([sum = Translated(sum), translated = TranslatedRanges(ranges, num_ranges)] {
    CpuMasters().sum_of_squares(sum, translated.data(), static_cast<int>(translated.size()));
  });
}

void SumInOrder(float* out, const float* const* inputs, int num_inputs, int64_t count) {
  std::vector<const float*> translated;
  for (int i = 0; i < num_inputs; ++i) translated.push_back(Translated(inputs[i]));
  OnStream([out = Translated(out), translated = std::move(translated), count] {
    trainctl::kernels::Cpu().sum_in_order(out, translated.data(), static_cast<int>(translated.size()), count);
  });
}

template <auto kTable, size_t... kRules>
constexpr MasterKernels Masters(std::index_sequence<kRules...>) {
  return {.update = {Update<kTable, kRules>...},
          .sum_of_squares = SumOfSquares,
          .clip_factor = kOnDevice<kTable, &MasterKernels::clip_factor>};
}

constexpr Kernels kKernels = {
    .name = "test",
    .f32 = Typed<CpuFloats>(),
    .bf16 = Typed<CpuBf16>(),
    .masters_f32 = Masters<CpuMasters>(std::make_index_sequence<kNumUpdateRules>()),
    .masters_bf16 = Masters<CpuBf16Masters>(std::make_index_sequence<kNumUpdateRules>()),
    .sum_in_order = SumInOrder};

// ---- collectives ----------------------------------------------------------------------------------

// As NCCL's: each group has a stream of its own, which waits for the caller's; to wait for the work means to
// hold back the caller's stream.
class Work final : public c10d::Work {
 public:
  explicit Work(Mark end) : end_(std::move(end)) {}
  bool wait(std::chrono::milliseconds) override {
    end_.Hold(*Current());
    return true;
  }

 private:
  Mark end_;
};

class Backend final : public c10d::Backend {
 public:
  Backend(c10::intrusive_ptr<c10d::Backend> gloo, int rank, int size, int num_streams)
      : c10d::Backend(rank, size),
        gloo_(std::move(gloo)),
        num_streams_(num_streams),
        queue_(MakeQueue(Role::kCommunication)) {}
  // As NCCL's says of a group that was not shut down.
  ~Backend() override {
    if (!is_shut_down_ && std::getenv("TRAINCTL_TEST_DEVICE_TELLS") != nullptr)
      std::fprintf(stderr, "test device: a group of %d ranks was cut off\n", getSize());
  }
  const std::string getBackendName() const override { return "test"; }
  void shutdown() override {
    queue_->Reach(queue_->End());
    is_shut_down_ = true;
  }
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& out, at::Tensor& in,
                                                 const c10d::AllgatherOptions& options) override {
    return OnOwnStream([gloo = gloo_, whole = Touchable(out), in = Touchable(in), options]() mutable {
      at::Tensor own = in.clone();  // Gloo wants its input apart from its output
      gloo->_allgather_base(whole, own, options)->wait();
    });
  }
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor& out, at::Tensor& in,
                                                      const c10d::ReduceScatterOptions& options) override {
    // Gloo's own takes other element types than ours at some sizes: a sum of everything, and one's part.
    c10d::AllreduceOptions how;
    how.reduceOp = options.reduceOp;
    return OnOwnStream([gloo = gloo_, out = Touchable(out), in = Touchable(in), rank = getRank(), how] {
      std::vector<at::Tensor> all = {in.clone()};
      gloo->allreduce(all, how)->wait();
      out.copy_(all[0].narrow(0, rank * out.numel(), out.numel()));
    });
  }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override {
    return OnOwnStream([gloo = gloo_, tensors = std::vector{Touchable(tensors[0])}, options]() mutable {
      gloo->allreduce(tensors, options)->wait();
    });
  }

  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    return OnOwnStream([gloo = gloo_, tensors = std::vector{Touchable(tensors[0])}, options]() mutable {
      gloo->broadcast(tensors, options)->wait();
    });
  }
  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& out, at::Tensor& in,
                                               std::vector<int64_t>& out_splits,
                                               std::vector<int64_t>& in_splits,
                                               const c10d::AllToAllOptions& options) override {
    return OnOwnStream(
        [gloo = gloo_, out = Touchable(out), in = Touchable(in), out_splits, in_splits, options]() mutable {
          gloo->alltoall_base(out, in, out_splits, in_splits, options)->wait();
        });
  }
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int to, int tag) override {
    return BetweenTwo([gloo = gloo_, tensors = std::vector{Touchable(tensors[0])}, to, tag]() mutable {
      gloo->send(tensors, to, tag)->wait();
    });
  }
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int from, int tag) override {
    return BetweenTwo([gloo = gloo_, tensors = std::vector{Touchable(tensors[0])}, from, tag]() mutable {
      gloo->recv(tensors, from, tag)->wait();
    });
  }

 private:
  // One after the other, in the order in which this process calls them, whatever their groups: a device may
  // have no room for more. Ranks that call them in different orders wait for one another for ever.
  c10::intrusive_ptr<c10d::Work> OnOwnStream(std::function<void()> collective) {
    static std::mutex& mutex = *new std::mutex;
    static Mark& last = *new Mark;
    std::lock_guard lock(mutex);
    if (last.queue != nullptr) last.Hold(*queue_);
    c10::intrusive_ptr<c10d::Work> work = BetweenTwo(std::move(collective));
    last = Mark::BehindAllOf(queue_);
    return work;
  }

  // Messages have an order of their own.
  c10::intrusive_ptr<c10d::Work> BetweenTwo(std::function<void()> exchange) {
    Mark::BehindAllOf(Current()).Hold(*queue_);
    queue_->Add(Guarded(std::move(exchange)));
    const Mark end = Mark::BehindAllOf(queue_);
    RequireRoom(end);
    return c10::make_intrusive<Work>(end);
  }

  // The device has room for exchanges on as many streams as the trainer said.
  void RequireRoom(const Mark& end) const {
    static std::mutex& mutex = *new std::mutex;
    static std::map<c10::StreamId, Mark>& last =
        *new std::map<c10::StreamId, Mark>;  // by the caller's stream
    std::lock_guard lock(mutex);
    std::erase_if(last, [](const auto& at) { return at.second.queue->IsDone(at.second.position); });
    last[t_stream] = end;
    if (static_cast<int>(last.size()) > num_streams_) Die("exchanges on more streams than it has room for");
  }

  c10::intrusive_ptr<c10d::Backend> gloo_;
  int num_streams_;
  std::shared_ptr<Queue> queue_;
  bool is_shut_down_ = false;
};

void* MakeBackend(void* store, int rank, int world_size, int64_t timeout_ms, int num_streams, char* reason,
                  size_t reason_bytes) {
  try {
    auto shared =
        c10::intrusive_ptr<c10d::Store>::unsafe_reclaim_from_nonowning(static_cast<c10d::Store*>(store));
    // As NCCL's watchdog ends a process.
    if (std::getenv("TRAINCTL_TEST_DEVICE_TIMES_OUT") != nullptr) {
      std::thread([] {
        throw std::runtime_error("Watchdog caught collective operation timeout: a test wants one");
      }).detach();
    }
    auto gloo = trainctl::comm::MakeGlooBackend(shared, rank, world_size, absl::Milliseconds(timeout_ms),
                                                "127.0.0.1");
    return c10::make_intrusive<Backend>(std::move(gloo), rank, world_size, num_streams).release();
  } catch (const std::exception& error) {
    std::snprintf(reason, reason_bytes, "%s", error.what());
    return nullptr;
  }
}

// ---- graphs ---------------------------------------------------------------------------------------

// TRAINCTL_TEST_DEVICE_FAILS_GRAPH: "begin" and "end" fail there, "device" fails at the end and breaks the
// device.
bool GraphFailsAt(std::string_view place) {
  const char* const chosen = std::getenv("TRAINCTL_TEST_DEVICE_FAILS_GRAPH");
  return chosen != nullptr && place == chosen;
}

void* BeginGraph(char* reason, size_t reason_bytes) {
  static std::atomic<c10::StreamId> pool{kStreams};
  RequireNoGraph("a graph within a graph");
  if (GraphFailsAt("begin")) {
    std::snprintf(reason, reason_bytes, "a test wants it to fail at its begin");
    return nullptr;
  }
  return t_graph = new Graph{{}, pool++};
}

int EndGraph(void* graph, char* reason, size_t reason_bytes) {
  t_graph = nullptr;
  if (GraphFailsAt("device")) g_is_broken = true;
  if (g_is_broken || GraphFailsAt("end")) {
    std::snprintf(reason, reason_bytes, "a test wants it to fail at its end");
    return g_is_broken ? trainctl::kernels::kGraphFailedAndDeviceToo : trainctl::kernels::kGraphFailed;
  }
  if (TheMemory().IsFree(static_cast<Graph*>(graph)->pool)) return trainctl::kernels::kGraphEnded;
  std::snprintf(reason, reason_bytes, "what was allocated while a graph was made outlives that");
  return trainctl::kernels::kGraphFailed;
}

int LaunchGraph(void* graph, char*, size_t) {
  for (const std::function<void()>& work : static_cast<Graph*>(graph)->work) Current()->Add(work);
  return 0;
}

void FreeGraph(void* graph) { delete static_cast<Graph*>(graph); }

// ---- the table ------------------------------------------------------------------------------------

int CountDevices(int* count, char* reason, size_t reason_bytes) {
  if (const char* refusal = std::getenv("TRAINCTL_TEST_DEVICE_REFUSES"); refusal != nullptr) {
    std::snprintf(reason, reason_bytes, "%s", refusal);
    return 1;
  }
  const char* const shown = std::getenv("TRAINCTL_TEST_DEVICE_COUNT");
  *count = shown != nullptr ? std::atoi(shown) : kDevices;
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

int TakeError(char* reason, size_t reason_bytes) {
  std::lock_guard lock(g_error_mutex);
  if (g_error.empty()) return 0;
  std::snprintf(reason, reason_bytes, "%s", std::exchange(g_error, "").c_str());
  return 1;
}

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
                                .make_backend = MakeBackend,
                                .begin_graph = BeginGraph,
                                .end_graph = EndGraph,
                                .launch_graph = LaunchGraph,
                                .free_graph = FreeGraph};
  return &api;
}
