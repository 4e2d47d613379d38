// What a device of tests tells LibTorch of its tensors: how they are made of the memory of the allocator that
// it registers, that their views are as everywhere, and which memory of the host is pinned.
#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/NativeFunctions.h>
#include <torch/library.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <set>

#include "device/aten.h"

namespace trainctl::test_device {

// Memory of the host, of which it knows what it gave.
class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* const data = std::malloc(bytes);
    TORCH_CHECK(data != nullptr || bytes == 0, "no memory");
    std::lock_guard lock(mutex_);
    given_.insert(data);
    return {data, data, &Delete, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Delete; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }

  static bool Gave(const void* data) {
    std::lock_guard lock(mutex_);
    return given_.count(data) > 0;
  }

 private:
  static void Delete(void* data) {
    {
      std::lock_guard lock(mutex_);
      given_.erase(data);
    }
    std::free(data);
  }
  static inline std::mutex mutex_;
  static inline std::set<const void*> given_;
};

inline c10::Allocator* PinnedMemory() {
  static auto& allocator = *new PinnedAllocator;
  return &allocator;
}
// Of the beginning of a piece of it.
inline bool IsPinned(const void* data) { return PinnedAllocator::Gave(data); }

inline at::Tensor EmptyMemoryFormat(c10::IntArrayRef size, std::optional<at::ScalarType> dtype,
                                    std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>,
                                    std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, c10::GetAllocator(at::DeviceType::PrivateUse1),
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}

inline at::Tensor EmptyStrided(c10::IntArrayRef size, c10::IntArrayRef stride,
                               std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                               std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, c10::GetAllocator(at::DeviceType::PrivateUse1),
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(dtype));
}

inline void RegisterTensors(torch::Library& m) {
  m.impl("empty.memory_format", EmptyMemoryFormat);
  m.impl("empty_strided", EmptyStrided);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("view", static_cast<at::Tensor (*)(const at::Tensor&, at::IntArrayRef)>(at::native::view));
  m.impl("_reshape_alias", [](const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
    return at::native::_reshape_alias(self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride));
  });
}

}  // namespace trainctl::test_device
