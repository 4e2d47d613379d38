// What the ranks wrote, put together.

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"

namespace trainctl::checkpoint {
namespace {

// The slices of all ranks, by tensor and by box; each tensor's agree in dtype and shape.
absl::Status GatherPieces(absl::Span<const RankIndex> indexes, Manifest& manifest) {
  absl::flat_hash_map<std::string, size_t> tensor_of;
  for (const RankIndex& index : indexes) {
    for (size_t i = 0; i < index.slices.size(); ++i) {
      const Slice& slice = index.slices[i];
      const auto [it, is_new] = tensor_of.emplace(slice.name, manifest.tensors.size());
      if (is_new) {
        const absl::StatusOr<int64_t> count = NumElements(slice.shape);
        if (!count.ok()) return Annotate(count.status(), absl::StrCat("tensor '", slice.name, "'"));
        manifest.tensors.push_back(
            Slice{slice.name, slice.dtype, slice.shape, layout::WholeBox(slice.shape)});
        manifest.pieces.emplace_back();
      }
      const Slice& whole = manifest.tensors[it->second];
      if (whole.dtype != slice.dtype || whole.shape != slice.shape) {
        return InternalError(absl::StrCat("checkpoint tensor '", slice.name, "': rank ", index.rank,
                                          " wrote ", DTypeName(slice.dtype), " ", ShapeText(slice.shape),
                                          ", but another rank wrote ", DTypeName(whole.dtype), " ",
                                          ShapeText(whole.shape)));
      }
      if (slice.count() == 0) continue;
      manifest.pieces[it->second].push_back({slice.box, index.rank, index.offset_bytes[i]});
    }
  }
  for (std::vector<Piece>& pieces : manifest.pieces) {
    std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
      return std::lexicographical_compare(
          a.box.dims.begin(), a.box.dims.end(), b.box.dims.begin(), b.box.dims.end(),
          [](const layout::Interval& x, const layout::Interval& y) { return x.begin < y.begin; });
    });
  }
  return absl::OkStatus();
}

absl::Status CheckWrittenOnce(const Slice& tensor, const std::vector<Piece>& pieces) {
  const std::string where = absl::StrCat("checkpoint tensor '", tensor.name, "': ");
  if (const auto overlap = FindOverlap(pieces)) {
    const Piece &a = pieces[overlap->first], &b = pieces[overlap->second];
    return InternalError(absl::StrCat(where, "elements ", layout::Intersect(a.box, b.box).ToString(),
                                      " were written by both rank ", std::min(a.file, b.file), " and rank ",
                                      std::max(a.file, b.file)));
  }
  int64_t written = 0;
  for (const Piece& piece : pieces) written += piece.box.Count();
  if (written == tensor.count()) return absl::OkStatus();
  return InternalError(absl::StrCat(where, "no rank wrote ", tensor.count() - written, " of its ",
                                    tensor.count(), " elements"));
}

}  // namespace

absl::StatusOr<Manifest> MergeIndexes(const CheckpointMeta& meta, absl::Span<const RankIndex> indexes) {
  Manifest manifest;
  manifest.meta = meta;
  manifest.world_size = static_cast<int>(indexes.size());
  for (const RankIndex& index : indexes) {
    TRAINCTL_CHECK(index.rank == static_cast<int>(manifest.files.size()));
    manifest.files.push_back(index.file);
  }
  TRAINCTL_RETURN_IF_ERROR(GatherPieces(indexes, manifest));
  for (size_t i = 0; i < manifest.tensors.size(); ++i) {
    TRAINCTL_RETURN_IF_ERROR(CheckWrittenOnce(manifest.tensors[i], manifest.pieces[i]));
  }
  return manifest;
}

}  // namespace trainctl::checkpoint
