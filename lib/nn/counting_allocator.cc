#include "nn/counting_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

namespace trainctl::nn {
namespace {

std::atomic<int64_t> g_live{0};
std::atomic<int64_t> g_peak{0};

// In front of each block; as large as the alignment, so that the tensor stays aligned.
constexpr size_t kAlignment = 64;
struct alignas(kAlignment) Header {
  int64_t bytes;
};

void Free(void* data) {
  if (data == nullptr) return;
  Header* header = static_cast<Header*>(data) - 1;
  g_live.fetch_sub(header->bytes, std::memory_order_relaxed);
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
    const int64_t live = g_live.fetch_add(header->bytes, std::memory_order_relaxed) + header->bytes;
    int64_t peak = g_peak.load(std::memory_order_relaxed);
    while (live > peak && !g_peak.compare_exchange_weak(peak, live, std::memory_order_relaxed)) {
    }
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
void ResetPeakTensorBytes() { g_peak.store(g_live.load()); }

}  // namespace trainctl::nn
