#include "nn/bf16_product.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "base/status.h"
#include "device/aten.h"
#include "device/counting_allocator.h"
#include "kernels/kernels.h"

namespace trainctl::nn {
namespace {

constexpr int64_t kTile = 256;  // rows, columns and inner ones

// In fp32, in the order in which its elements lie.
at::Tensor InFp32(const at::Tensor& part, const at::Tensor& scratch) {
  const bool by_columns = part.stride(0) == 1 && part.stride(1) != 1;
  const at::Tensor rows = by_columns ? part.t() : part;
  at::Tensor tile = scratch.narrow(0, 0, part.numel()).view(rows.sizes());
  tile.copy_(rows);
  return by_columns ? tile.t() : tile;
}

}  // namespace

bool LacksFastBf16Products() {
#if defined(__x86_64__)
  static const bool lacks = !kernels::HasAvx512();
  return lacks;
#else
  return false;
#endif
}

void MultiplyInTiles(at::Tensor& out, const at::Tensor& a, const at::Tensor& b) {
  TRAINCTL_CHECK(a.size(1) == b.size(0) && out.size(0) == a.size(0) && out.size(1) == b.size(1));
  const int64_t rows = out.size(0), columns = out.size(1), inner = a.size(1);
  const int64_t tiles_across = (columns + kTile - 1) / kTile;
  const int64_t num_tiles = (rows + kTile - 1) / kTile * tiles_across;
  at::parallel_for(0, num_tiles, 1, [&](int64_t begin, int64_t end) {
    const device::ScopedCpuMemoryTag tag(device::kScratchTag);
    const at::Tensor scratch = at::empty({3, kTile * kTile}, at::kFloat);
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t row = tile / tiles_across * kTile, column = tile % tiles_across * kTile;
      const int64_t m = std::min(kTile, rows - row), n = std::min(kTile, columns - column);
      at::Tensor sum = scratch[2].narrow(0, 0, m * n).view({m, n});
      for (int64_t first = 0; first < inner; first += kTile) {
        const int64_t k = std::min(kTile, inner - first);
        const at::Tensor left = InFp32(a.narrow(0, row, m).narrow(1, first, k), scratch[0]);
        const at::Tensor right = InFp32(b.narrow(0, first, k).narrow(1, column, n), scratch[1]);
        if (first == 0) {
          at::mm_out(sum, left, right);
        } else {
          sum.addmm_(left, right);
        }
      }
      out.narrow(0, row, m).narrow(1, column, n).copy_(sum);
    }
  });
}

}  // namespace trainctl::nn
