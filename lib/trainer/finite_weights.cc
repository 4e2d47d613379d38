#include "trainer/finite_weights.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "base/dtype.h"
#include "base/status.h"
#include "checkpoint/finite_values.h"

namespace trainctl::trainer {
namespace {

constexpr int64_t kPieceElements = 1 << 20;

bool OwnWeightsAreFinite(const parallel::ShardedState& state) {
  const DType dtype = state.master_dtype();
  std::vector<std::byte> piece(static_cast<size_t>(kPieceElements * DTypeBytes(dtype)));
  for (const int bucket : state.buckets()) {
    const auto* const master = static_cast<const std::byte*>(state.parts(bucket).master);
    const int64_t numel = state.ledger().optimizer_numel(bucket);
    for (int64_t first = 0; first < numel; first += kPieceElements) {
      const int64_t bytes = std::min(kPieceElements, numel - first) * DTypeBytes(dtype);
      state.device().CopyToHost(piece.data(), master + first * DTypeBytes(dtype), bytes);
      if (!checkpoint::AllFinite(dtype, absl::MakeSpan(piece).first(static_cast<size_t>(bytes))))
        return false;
    }
  }
  return true;
}

}  // namespace

absl::StatusOr<bool> AllWeightsAreFinite(const parallel::ShardedState& state, comm::Group& world) {
  double bad_ranks = OwnWeightsAreFinite(state) ? 0 : 1;
  TRAINCTL_RETURN_IF_ERROR(world.AllReduceScalars("weights", absl::MakeSpan(&bad_ranks, 1)));
  return bad_ranks == 0;
}

}  // namespace trainctl::trainer
