// What a device of tests tells LibTorch of its tensors: how they are made of the memory of the allocator that
// it registers, and that their views are as everywhere.
#pragma once

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <torch/library.h>

#include <optional>

namespace trainctl::test_device {

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
