// Time of fused attention kernels on a device: the published rate of each kernel on each generation, and how
// few tiles of queries or keys leave compute units idle. Pure; thread safe.
#pragma once

#include "cluster/catalogue.h"
#include "simulate/device_kernels.h"

namespace trainctl::simulate {

enum class FusedAttention : uint8_t {
  kFlash1,  // the first FlashAttention, and its Triton version
  kFlash2,  // FlashAttention-2
  kVendor,  // the vendor's fused kernel for the newest devices (cuDNN, FlashAttention-3)
};

struct AttentionShape {
  double queries = 0;  // tokens of this rank
  double keys = 0;     // that each sees on average
  double heads = 0;
  double head_dim = 0;
  double seq_len = 0;  // read with fp8 alone
  bool fp8 = false;    // scores and values too are products of FP8, where the device has kernels for it
};

ForwardBackward AttentionSeconds(const cluster::Device& device, FusedAttention kernel,
                                 const AttentionShape& shape);

}  // namespace trainctl::simulate
