#include "device/counting_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

namespace trainctl::device {
namespace {

std::atomic<int64_t> g_live{0};
std::atomic<int64_t> g_peak{0};
std::array<std::atomic<int64_t>, kNumMemoryTags> g_live_by_tag{};
std::mutex g_peak_mutex;
TaggedBytes g_at_peak{};
thread_local int t_tag = 0;

// In front of each block; as large as the alignment, so that the tensor stays aligned.
constexpr size_t kAlignment = 64;
struct alignas(kAlignment) Header {
  int64_t bytes;
  int tag;
};

void TakePeak(int64_t live) {
  std::lock_guard lock(g_peak_mutex);
  if (live <= g_peak.load(std::memory_order_relaxed)) return;
  g_peak.store(live, std::memory_order_relaxed);
  for (size_t tag = 0; tag < g_at_peak.size(); ++tag) g_at_peak[tag] = g_live_by_tag[tag].load();
}

void Free(void* data) {
  if (data == nullptr) return;
  Header* header = static_cast<Header*>(data) - 1;
  g_live.fetch_sub(header->bytes, std::memory_order_relaxed);
  g_live_by_tag[static_cast<size_t>(header->tag)].fetch_sub(header->bytes, std::memory_order_relaxed);
  std::free(header);
}

class CountingAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &Free, c10::Device(c10::DeviceType::CPU)};
    const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    auto* header = static_cast<Header*>(std::aligned_alloc(kAlignment, sizeof(Header) + rounded));
    if (header == nullptr) throw std::bad_alloc();
    header->bytes = static_cast<int64_t>(bytes);
    header->tag = t_tag;
    g_live_by_tag[static_cast<size_t>(t_tag)].fetch_add(header->bytes, std::memory_order_relaxed);
    const int64_t live = g_live.fetch_add(header->bytes, std::memory_order_relaxed) + header->bytes;
    if (live > g_peak.load(std::memory_order_relaxed)) TakePeak(live);
    void* data = header + 1;
    return {data, data, &Free, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void* to, const void* from, std::size_t count) const override {
    std::memcpy(to, from, count);
  }
};

}  // namespace

void InstallCountingAllocator() {
  static CountingAllocator allocator;
  c10::SetCPUAllocator(&allocator, /*priority=*/100);
}

int64_t LiveTensorBytes() { return g_live.load(); }
int64_t PeakTensorBytes() { return g_peak.load(); }

TaggedBytes TensorBytesAtPeak() {
  std::lock_guard lock(g_peak_mutex);
  return g_at_peak;
}

void ResetPeakTensorBytes() {
  g_peak.store(-1);
  TakePeak(g_live.load());
}

ScopedCpuMemoryTag::ScopedCpuMemoryTag(int tag) : outer_(t_tag) { t_tag = tag; }
ScopedCpuMemoryTag::~ScopedCpuMemoryTag() { t_tag = outer_; }

}  // namespace trainctl::device
