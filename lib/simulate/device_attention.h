// Estimates the time of fused attention kernels on a device. The estimate combines the published rate of each
// kernel on each generation of devices with the idle time of the compute units when there are few tiles of
// queries or keys. The sources of the rates are in device_attention.cc. Pure functions; thread-safe.
#pragma once

#include "cluster/catalogue.h"
#include "simulate/device_kernels.h"

namespace trainctl::simulate {

enum class FusedAttention : uint8_t {
  kFlash1,  // the first FlashAttention, and its Triton version
  kFlash2,  // FlashAttention-2
  kVendor,  // the vendor's kernel: cuDNN or FlashAttention-3 on NVIDIA devices, AITER on AMD devices
};

struct AttentionShape {
  double queries = 0;  // number of query tokens on this rank
  double keys = 0;     // number of keys per query, on average
  double heads = 0;    // number of query heads on this rank
  double head_dim = 0;
  double seq_len = 0;  // tokens per sequence; used only if `fp8` is true
  // Whether the products with keys and values use FP8. Only GB200, B300 and GB300 have such kernels in this
  // model; other devices ignore this field.
  bool fp8 = false;
};

// Returns the time of the forward and of the backward of one kernel, each at least kKernelSeconds. A
// generation without rates for `kernel` uses those of another kernel: FlashAttention-2 instead of kVendor on
// Ampere and older devices, and the vendor's kernel instead of kFlash2 on Blackwell. kFlash1 has the rates of
// kFlash2 divided by a constant.
ForwardBackward AttentionSeconds(const cluster::Device& device, FusedAttention kernel,
                                 const AttentionShape& shape);

}  // namespace trainctl::simulate
