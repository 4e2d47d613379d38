#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"
#include "checkpoint/checkpoint_io.h"
#include "checkpoint/chunk_reader.h"
#include "checkpoint/finite_values.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"

namespace trainctl::checkpoint {
namespace {

// What a requested slice shares with a piece of a file.
struct Request {
  const Piece* piece;
  layout::Box part;
  int64_t offset;  // in the file, of its first element
  size_t slice;
};

absl::Status CheckRequest(const Slice& slice, const Slice& stored, const std::string& path) {
  if (slice.dtype != stored.dtype || slice.shape != stored.shape) {
    return BadDataError(absl::StrCat(path, ": tensor '", slice.name, "' is ", DTypeName(stored.dtype), " ",
                                     ShapeText(stored.shape), ", not ", DTypeName(slice.dtype), " ",
                                     ShapeText(slice.shape), " as requested"));
  }
  if (!layout::Contains(layout::WholeBox(slice.shape), slice.box)) {
    return InternalError(absl::StrCat(path, ": tensor '", slice.name, "': ", slice.box.ToString(),
                                      " was requested, but it is ", ShapeText(slice.shape)));
  }
  return absl::OkStatus();
}

int64_t OffsetInFile(const Manifest& manifest, const Piece& piece, DType dtype, int64_t element) {
  return manifest.files[piece.file].data_offset + piece.offset_bytes + element * DTypeBytes(dtype);
}

void AddRequests(absl::Span<const Slice> slices, size_t slice, const Manifest& manifest, size_t tensor,
                 std::vector<Request>& requests) {
  for (const Piece& piece : manifest.pieces[tensor]) {
    layout::Box part = layout::Intersect(slices[slice].box, piece.box);
    if (part.Count() == 0) continue;
    const int64_t first = layout::Runs(part, piece.box, part)[0].from;
    const int64_t offset = OffsetInFile(manifest, piece, slices[slice].dtype, first);
    requests.push_back({&piece, std::move(part), offset, slice});
  }
}

// Hands out one request, run by run.
absl::Status ReadRequest(const Manifest& manifest, const Request& request, const Slice& slice,
                         ChunkReader& chunks, const SliceWriter& write) {
  const int64_t width = DTypeBytes(slice.dtype);
  const layout::Runs runs(request.part, request.piece->box, slice.box);
  for (int64_t r = 0; r < runs.size(); ++r) {
    const layout::Run run = runs[r];
    const int64_t offset = OffsetInFile(manifest, *request.piece, slice.dtype, run.from);
    for (int64_t done = 0; done < run.count;) {
      absl::StatusOr<absl::Span<const std::byte>> bytes =
          chunks.BytesAt(request.piece->file, offset + done * width, (run.count - done) * width);
      if (!bytes.ok()) {
        return Annotate(bytes.status(), absl::StrCat("cannot read tensor '", slice.name, "'"));
      }
      // Chunks and data areas begin at multiples of 8, pieces at multiples of their width.
      const int64_t count = static_cast<int64_t>(bytes->size()) / width;
      TRAINCTL_CHECK(count > 0 && bytes->size() % static_cast<size_t>(width) == 0);
      TRAINCTL_RETURN_IF_ERROR(write(request.slice, run.to + done, *bytes));
      done += count;
    }
  }
  return absl::OkStatus();
}

// Where a piece of a weight lies in a file.
struct WeightRange {
  int64_t begin;
  int64_t end;
  const Slice* tensor;
};

// In the order of the file.
std::vector<WeightRange> WeightsIn(const Manifest& manifest, int file) {
  std::vector<WeightRange> ranges;
  for (size_t i = 0; i < manifest.tensors.size(); ++i) {
    const Slice& tensor = manifest.tensors[i];
    if (IsOptimizerState(tensor)) continue;
    for (const Piece& piece : manifest.pieces[i]) {
      if (piece.file != file) continue;
      const int64_t begin = OffsetInFile(manifest, piece, tensor.dtype, 0);
      ranges.push_back({begin, begin + piece.box.Count() * DTypeBytes(tensor.dtype), &tensor});
    }
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const WeightRange& a, const WeightRange& b) { return a.begin < b.begin; });
  return ranges;
}

// `bytes` of the file from `offset` on: the names of the weights in them that are not finite. No element lies
// across their ends (see ReadRequest).
void AddNonFinite(const std::vector<WeightRange>& weights, int64_t offset, absl::Span<const std::byte> bytes,
                  std::set<std::string>& found) {
  const int64_t end = offset + static_cast<int64_t>(bytes.size());
  auto range = std::partition_point(weights.begin(), weights.end(),
                                    [&](const WeightRange& weight) { return weight.end <= offset; });
  for (; range != weights.end() && range->begin < end; ++range) {
    const int64_t first = std::max(range->begin, offset);
    const int64_t last = std::min(range->end, end);
    const auto part = bytes.subspan(static_cast<size_t>(first - offset), static_cast<size_t>(last - first));
    if (!AllFinite(range->tensor->dtype, part)) found.insert(range->tensor->name);
  }
}

}  // namespace

bool IsOptimizerState(const Slice& tensor) { return absl::StartsWith(tensor.name, "optimizer."); }

absl::StatusOr<CheckpointReader> CheckpointReader::Open(const std::string& path) {
  const std::string manifest_path = absl::StrCat(path, "/", kManifestName);
  if (!PathExists(path)) return BadDataError(absl::StrCat("no such checkpoint folder: ", path));
  if (::access(manifest_path.c_str(), F_OK) != 0 && errno == ENOENT) {
    return BadDataError(absl::StrCat(path, ": not a checkpoint: it does not contain ", kManifestName));
  }
  TRAINCTL_ASSIGN_OR_RETURN(const std::string text, ReadFile(manifest_path));
  TRAINCTL_ASSIGN_OR_RETURN(Manifest manifest, ParseManifest(text, manifest_path));
  for (const FileEntry& file : manifest.files) {
    TRAINCTL_ASSIGN_OR_RETURN(const int fd,
                              OpenSizedFile(absl::StrCat(path, "/", file.name), file.size_bytes));
    ::close(fd);
  }
  CheckpointReader reader;
  reader.path_ = path;
  reader.manifest_ = std::make_shared<const Manifest>(std::move(manifest));
  return reader;
}

const CheckpointMeta& CheckpointReader::meta() const { return manifest_->meta; }

int CheckpointReader::world_size() const { return manifest_->world_size; }

const std::vector<Slice>& CheckpointReader::tensors() const { return manifest_->tensors; }

const Slice* CheckpointReader::Find(const std::string& name) const {
  for (const Slice& tensor : manifest_->tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

absl::Status CheckpointReader::Read(absl::Span<const Slice> slices, const SliceWriter& write) const {
  absl::flat_hash_map<absl::string_view, size_t> tensor_of;
  for (size_t i = 0; i < manifest_->tensors.size(); ++i) tensor_of[manifest_->tensors[i].name] = i;
  std::vector<Request> requests;
  for (size_t i = 0; i < slices.size(); ++i) {
    const auto found = tensor_of.find(slices[i].name);
    if (found == tensor_of.end()) {
      return BadDataError(absl::StrCat(path_, ": contains no tensor '", slices[i].name, "'"));
    }
    TRAINCTL_RETURN_IF_ERROR(CheckRequest(slices[i], manifest_->tensors[found->second], path_));
    AddRequests(slices, i, *manifest_, found->second, requests);
  }
  // In the order of the files, so that each chunk is read and verified once.
  std::stable_sort(requests.begin(), requests.end(), [](const Request& a, const Request& b) {
    return a.piece->file != b.piece->file ? a.piece->file < b.piece->file : a.offset < b.offset;
  });
  ChunkReader chunks(path_, *manifest_);
  for (const Request& request : requests) {
    TRAINCTL_RETURN_IF_ERROR(ReadRequest(*manifest_, request, slices[request.slice], chunks, write));
  }
  return absl::OkStatus();
}

absl::Status CheckpointReader::Verify(std::vector<std::string>* non_finite) const {
  ChunkReader chunks(path_, *manifest_);
  std::set<std::string> found;
  for (int file = 0; file < static_cast<int>(manifest_->files.size()); ++file) {
    const std::vector<WeightRange> weights =
        non_finite != nullptr ? WeightsIn(*manifest_, file) : std::vector<WeightRange>();
    const int64_t size_bytes = manifest_->files[file].size_bytes;
    for (int64_t offset = 0; offset < size_bytes;) {
      TRAINCTL_ASSIGN_OR_RETURN(const absl::Span<const std::byte> bytes,
                                chunks.BytesAt(file, offset, size_bytes - offset));
      AddNonFinite(weights, offset, bytes, found);
      offset += static_cast<int64_t>(bytes.size());
    }
  }
  if (non_finite != nullptr) non_finite->assign(found.begin(), found.end());
  return absl::OkStatus();
}

}  // namespace trainctl::checkpoint
