#include <cerrno>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"
#include "checkpoint/block_writer.h"
#include "checkpoint/checkpoint_io.h"
#include "checkpoint/file_ops.h"
#include "checkpoint/folder_names.h"
#include "checkpoint/manifest.h"
#include "checkpoint/phase_hook.h"
#include "checkpoint/safetensors.h"

namespace trainctl::checkpoint {
namespace {

std::string Join(absl::string_view folder, absl::string_view name) { return absl::StrCat(folder, "/", name); }

absl::Status CheckSlice(const Slice& slice) {
  const std::string where = absl::StrCat("checkpoint tensor '", slice.name, "'");
  const absl::StatusOr<int64_t> total = NumElements(slice.shape);
  if (!total.ok()) return Annotate(total.status(), where);
  if (!layout::Contains(layout::WholeBox(slice.shape), slice.box)) {
    return InternalError(absl::StrCat(where, ": the box ", slice.box.ToString(), " does not lie within ",
                                      ShapeText(slice.shape)));
  }
  return absl::OkStatus();
}

// The entry of a slice in the rank's file. A whole tensor keeps its name and shape, so that a file of a
// single rank can be opened by any safetensors reader; a part is a tensor named with its box.
TensorInfo EntryOf(const Slice& slice) {
  if (slice.box == layout::WholeBox(slice.shape)) return {slice.name, slice.dtype, slice.shape};
  TensorInfo entry{absl::StrCat(slice.name, slice.box.ToString()), slice.dtype};
  for (const layout::Interval& dim : slice.box.dims) entry.shape.push_back(dim.count());
  return entry;
}

absl::Status WriteSlice(absl::Span<const Slice> slices, size_t slice, const SliceReader& read,
                        BlockWriter& out) {
  const int64_t width = DTypeBytes(slices[slice].dtype);
  const int64_t end = slices[slice].count();
  for (int64_t begin = 0; begin < end;) {
    // Headers are padded to 8 and wide types come first, so an element never straddles two buffers.
    const absl::Span<std::byte> space = out.Space();
    const int64_t count = std::min<int64_t>(end - begin, static_cast<int64_t>(space.size()) / width);
    TRAINCTL_CHECK(count > 0);
    const size_t num_bytes = static_cast<size_t>(count * width);
    TRAINCTL_RETURN_IF_ERROR(read(slice, begin, space.first(num_bytes)));
    TRAINCTL_RETURN_IF_ERROR(out.Advance(num_bytes));
    begin += count;
  }
  return absl::OkStatus();
}

}  // namespace

CheckpointWriter::CheckpointWriter(std::string root, int64_t step, int rank, int world_size,
                                   const std::string& tag, FileOps* ops)
    : root_(std::move(root)),
      step_(step),
      rank_(rank),
      world_size_(world_size),
      ops_(ops != nullptr ? ops : &RealFileOps()),
      temporary_(Join(root_, TemporaryName(step, tag))),
      committed_(Join(root_, CommittedName(step))) {
  TRAINCTL_CHECK(step >= 0 && rank >= 0 && rank < world_size);
}

absl::Status CheckpointWriter::Begin() {
  is_committed_ = false;
  commit_failure_ = absl::OkStatus();
  if (!PathExists(root_)) {
    // Not what it lies in: a run folder that was removed does not come back.
    if (ops_->Mkdir(root_) != 0) return ErrnoError("create folder", root_, errno);
    const size_t slash = root_.find_last_of('/');
    TRAINCTL_RETURN_IF_ERROR(
        SyncFolder(*ops_, slash == std::string::npos ? "." : root_.substr(0, slash + 1)));
  }
  TRAINCTL_RETURN_IF_ERROR(RemoveFolder(*ops_, temporary_));
  if (ops_->Mkdir(temporary_) != 0) return ErrnoError("create folder", temporary_, errno);
  return absl::OkStatus();
}

absl::Status CheckpointWriter::Write(absl::Span<const Slice> slices, const SliceReader& read) {
  RankIndex index;
  index.rank = rank_;
  std::vector<size_t> order;
  for (size_t i = 0; i < slices.size(); ++i) {
    TRAINCTL_RETURN_IF_ERROR(CheckSlice(slices[i]));
    if (slices[i].count() > 0) {
      order.push_back(i);
    } else {
      index.slices.push_back(slices[i]);
      index.offset_bytes.push_back(0);
    }
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return DTypeBytes(slices[a].dtype) > DTypeBytes(slices[b].dtype);
  });
  std::vector<TensorInfo> entries;
  for (const size_t slice : order) entries.push_back(EntryOf(slices[slice]));
  TRAINCTL_ASSIGN_OR_RETURN(const std::string header, FormatSafetensorsHeader({}, entries));

  const std::string path = Join(temporary_, RankFileName(rank_));
  TRAINCTL_ASSIGN_OR_RETURN(BlockWriter out, BlockWriter::Create(*ops_, path));
  TRAINCTL_RETURN_IF_ERROR(out.Append(header));
  const int64_t data_bytes = entries.empty() ? 0 : entries.back().offset_bytes + entries.back().num_bytes;
  bool half_written = false;
  const SliceReader read_and_report = [&](size_t slice, int64_t begin, absl::Span<std::byte> bytes) {
    if (!half_written && out.size_bytes() * 2 >= data_bytes) {
      half_written = true;
      ReachPhase("saving");
    }
    return read(slice, begin, bytes);
  };
  for (size_t i = 0; i < order.size(); ++i) {
    TRAINCTL_RETURN_IF_ERROR(WriteSlice(slices, order[i], read_and_report, out));
    index.slices.push_back(slices[order[i]]);
    index.offset_bytes.push_back(entries[i].offset_bytes);
  }
  if (!half_written) ReachPhase("saving");
  TRAINCTL_RETURN_IF_ERROR(out.Finish());
  index.file = {RankFileName(rank_), out.size_bytes(), static_cast<int64_t>(header.size()), kChunkBytes,
                out.chunk_xxh3()};
  TRAINCTL_ASSIGN_OR_RETURN(const std::string index_text, FormatRankIndex(index));
  return WriteSyncedFile(*ops_, Join(temporary_, RankIndexName(rank_)), index_text);
}

absl::Status CheckpointWriter::Commit(const CheckpointMeta& meta) {
  TRAINCTL_CHECK_MSG(rank_ == 0 && meta.step == step_, "commit of step ", meta.step, " by rank ", rank_,
                     " of the writer of step ", step_);
  if (!is_committed_ && commit_failure_.ok()) commit_failure_ = TryCommit(meta);
  is_committed_ = commit_failure_.ok();
  return commit_failure_;
}

absl::Status CheckpointWriter::TryCommit(const CheckpointMeta& meta) {
  std::vector<RankIndex> indexes;
  for (int rank = 0; rank < world_size_; ++rank) {
    const std::string path = Join(temporary_, RankIndexName(rank));
    if (!PathExists(path)) {
      return EnvironmentError(absl::StrCat("cannot commit step ", step_, ": rank ", rank, " left no ", path,
                                           "; all ranks must see the same folder and have finished writing"));
    }
    TRAINCTL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
    TRAINCTL_ASSIGN_OR_RETURN(RankIndex index, ParseRankIndex(text, path));
    if (index.rank != rank) return BadDataError(absl::StrCat(path, ": belongs to rank ", index.rank));
    const std::string file = Join(temporary_, index.file.name);
    TRAINCTL_ASSIGN_OR_RETURN(const int64_t size_bytes, FileBytes(file));
    if (size_bytes != index.file.size_bytes) {
      return BadDataError(absl::StrCat(file, " has ", size_bytes, " bytes, but rank ", rank, " wrote ",
                                       index.file.size_bytes));
    }
    indexes.push_back(std::move(index));
  }
  TRAINCTL_ASSIGN_OR_RETURN(const Manifest manifest, MergeIndexes(meta, indexes));
  TRAINCTL_ASSIGN_OR_RETURN(const std::string text, FormatManifest(manifest));
  const std::string manifest_path = Join(temporary_, kManifestName);
  if (ops_->Unlink(manifest_path) != 0 && errno != ENOENT) return ErrnoError("remove", manifest_path, errno);
  TRAINCTL_RETURN_IF_ERROR(WriteSyncedFile(*ops_, manifest_path, text));
  TRAINCTL_RETURN_IF_ERROR(SyncFolder(*ops_, temporary_));
  ReachPhase("before_commit_rename");
  TRAINCTL_RETURN_IF_ERROR(Publish());
  ReachPhase("after_commit_rename");
  // The indexes are in the manifest now. One that stays behind does no harm.
  for (int rank = 0; rank < world_size_; ++rank) ops_->Unlink(Join(committed_, RankIndexName(rank)));
  return absl::OkStatus();
}

absl::Status CheckpointWriter::Publish() {
  const std::string replaced = Join(root_, ReplacedName(step_));
  if (!PathExists(committed_)) {
    if (ops_->Rename(temporary_, committed_) != 0) return ErrnoError("rename to", committed_, errno);
    TRAINCTL_RETURN_IF_ERROR(SyncFolder(*ops_, root_));
    (void)RemoveFolder(*ops_, replaced);
    return absl::OkStatus();
  }
  // What is left of the older one, here and below, does no harm; ApplyRetention removes it.
  if (ops_->Exchange(temporary_, committed_) == 0) {
    TRAINCTL_RETURN_IF_ERROR(SyncFolder(*ops_, root_));
    (void)RemoveFolder(*ops_, temporary_);
    return absl::OkStatus();
  }
  if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP) return ErrnoError("replace", committed_, errno);
  // Two renames. In between, the older one counts under its second name (ListCheckpoints).
  TRAINCTL_RETURN_IF_ERROR(RemoveFolder(*ops_, replaced));
  if (ops_->Rename(committed_, replaced) != 0) return ErrnoError("rename to", replaced, errno);
  TRAINCTL_RETURN_IF_ERROR(SyncFolder(*ops_, root_));
  if (ops_->Rename(temporary_, committed_) != 0) return ErrnoError("rename to", committed_, errno);
  TRAINCTL_RETURN_IF_ERROR(SyncFolder(*ops_, root_));
  (void)RemoveFolder(*ops_, replaced);
  return absl::OkStatus();
}

}  // namespace trainctl::checkpoint
