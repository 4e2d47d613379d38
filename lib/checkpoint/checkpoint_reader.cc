#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"
#include "checkpoint/checkpoint_io.h"
#include "checkpoint/chunk_reader.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"

namespace trainctl::checkpoint {
namespace {

// Part of a requested slice that lies in one place of one file.
struct Request {
  int file;
  int64_t offset;  // in the file
  int64_t begin;   // element of the tensor
  int64_t count;
  const Slice* slice;
};

absl::Status CheckRequest(const Slice& slice, const Slice& stored, const std::string& path) {
  if (slice.dtype != stored.dtype || slice.shape != stored.shape) {
    return BadDataError(absl::StrCat(path, ": tensor '", slice.name, "' is ", DTypeName(stored.dtype), " ",
                                     ShapeText(stored.shape), ", not ", DTypeName(slice.dtype), " ",
                                     ShapeText(slice.shape), " as asked for"));
  }
  if (slice.begin < 0 || slice.count < 0 || slice.count > stored.count ||
      slice.begin > stored.count - slice.count) {
    return InternalError(absl::StrCat(path, ": tensor '", slice.name, "': ", slice.count, " elements from ",
                                      slice.begin, " on were asked for, it has ", stored.count));
  }
  return absl::OkStatus();
}

void AddRequests(const Slice& slice, const Manifest& manifest, size_t tensor,
                 std::vector<Request>& requests) {
  const std::vector<Piece>& pieces = manifest.pieces[tensor];
  const int64_t width = DTypeBytes(slice.dtype);
  const int64_t end = slice.begin + slice.count;
  auto piece = std::upper_bound(pieces.begin(), pieces.end(), slice.begin,
                                [](int64_t begin, const Piece& p) { return begin < p.begin + p.count; });
  for (; piece != pieces.end() && piece->begin < end; ++piece) {
    const int64_t from = std::max(slice.begin, piece->begin);
    const int64_t to = std::min(end, piece->begin + piece->count);
    if (from >= to) continue;
    const int64_t offset =
        manifest.files[piece->file].data_offset + piece->offset_bytes + (from - piece->begin) * width;
    requests.push_back({piece->file, offset, from, to - from, &slice});
  }
}

}  // namespace

absl::StatusOr<CheckpointReader> CheckpointReader::Open(const std::string& path) {
  const std::string manifest_path = absl::StrCat(path, "/", kManifestName);
  if (!PathExists(path)) return BadDataError(absl::StrCat(path, ": there is no such checkpoint"));
  if (::access(manifest_path.c_str(), F_OK) != 0 && errno == ENOENT) {
    return BadDataError(absl::StrCat(path, ": not a checkpoint: it has no ", kManifestName));
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
  for (const Slice& slice : slices) {
    const auto found = tensor_of.find(slice.name);
    if (found == tensor_of.end()) {
      return BadDataError(absl::StrCat(path_, ": has no tensor '", slice.name, "'"));
    }
    TRAINCTL_RETURN_IF_ERROR(CheckRequest(slice, manifest_->tensors[found->second], path_));
    AddRequests(slice, *manifest_, found->second, requests);
  }
  // In the order of the files, so that each chunk is read and verified once.
  std::stable_sort(requests.begin(), requests.end(), [](const Request& a, const Request& b) {
    return a.file != b.file ? a.file < b.file : a.offset < b.offset;
  });
  ChunkReader chunks(path_, *manifest_);
  for (const Request& request : requests) {
    const int64_t width = DTypeBytes(request.slice->dtype);
    Slice part = *request.slice;
    for (int64_t done = 0; done < request.count; done += part.count) {
      absl::StatusOr<absl::Span<const std::byte>> bytes =
          chunks.BytesAt(request.file, request.offset + done * width, (request.count - done) * width);
      if (!bytes.ok()) {
        return Annotate(bytes.status(), absl::StrCat("cannot read tensor '", request.slice->name, "'"));
      }
      // Chunks and data areas begin at multiples of 8, tensors at multiples of their width.
      part.begin = request.begin + done;
      part.count = static_cast<int64_t>(bytes->size()) / width;
      if (part.count == 0 || bytes->size() % static_cast<size_t>(width) != 0) {
        return BadDataError(absl::StrCat(path_, ": tensor '", request.slice->name, "' is not aligned"));
      }
      TRAINCTL_RETURN_IF_ERROR(write(part, *bytes));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckpointReader::Verify() const {
  ChunkReader chunks(path_, *manifest_);
  for (int file = 0; file < static_cast<int>(manifest_->files.size()); ++file) {
    const int64_t size_bytes = manifest_->files[file].size_bytes;
    for (int64_t offset = 0; offset < size_bytes;) {
      TRAINCTL_ASSIGN_OR_RETURN(const absl::Span<const std::byte> bytes,
                                chunks.BytesAt(file, offset, size_bytes - offset));
      offset += static_cast<int64_t>(bytes.size());
    }
  }
  return absl::OkStatus();
}

}  // namespace trainctl::checkpoint
