#include "checkpoint/manifest.h"

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "base/json.h"
#include "base/lfs_pointer.h"
#include "base/status.h"
#include "checkpoint/block_writer.h"
#include "checkpoint/safetensors.h"

namespace trainctl::checkpoint {
namespace {

constexpr absl::string_view kFormatPrefix = "trainctl.checkpoint.v";
constexpr int64_t kFormatVersion = 2;
constexpr int64_t kRangesVersion = 1;  // its pieces are ranges of the flattened tensor
constexpr absl::string_view kIndexFormat = "trainctl.checkpoint-index.v2";
// The text ends with  ,"manifest_xxh3":"0123456789abcdef"}\n  and the checksum is that of all before it.
// This ending is frozen: every later version has it, so that "newer" and "damaged" can be told apart.
constexpr absl::string_view kTrailerHead = ",\"manifest_xxh3\":\"";
constexpr absl::string_view kTrailerTail = "\"}\n";
constexpr size_t kHexDigits = 16;
constexpr int64_t kMinChunkBytes = 4096;
constexpr int64_t kMaxChunkBytes = int64_t{64} << 20;
constexpr size_t kMaxDims = 32;

std::string Hex(uint64_t value) { return absl::StrFormat("%016x", value); }

absl::StatusOr<std::string> Seal(const Json& json) {
  TRAINCTL_ASSIGN_OR_RETURN(std::string body, FormatExactJson(json));
  body.pop_back();  // the closing brace comes back with the trailer
  return absl::StrCat(body, kTrailerHead, Hex(ChecksumXxh3(body.data(), body.size())), kTrailerTail);
}

absl::Status CheckSeal(absl::string_view text, absl::string_view what) {
  const size_t trailer_bytes = kTrailerHead.size() + kHexDigits + kTrailerTail.size();
  if (text.size() < trailer_bytes) return BadDataError(absl::StrCat(what, ": truncated"));
  const absl::string_view body = text.substr(0, text.size() - trailer_bytes);
  absl::string_view trailer = text.substr(body.size());
  const std::string expected = Hex(ChecksumXxh3(body.data(), body.size()));
  if (!absl::ConsumePrefix(&trailer, kTrailerHead) || !absl::ConsumeSuffix(&trailer, kTrailerTail)) {
    return BadDataError(absl::StrCat(what, ": damaged or truncated: it does not end with its checksum"));
  }
  if (trailer != expected) {
    return BadDataError(
        absl::StrCat(what, ": damaged: its checksum is ", expected, ", but it records '", trailer, "'"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Json> JsonOf(const FileEntry& file) {
  std::string checksums;
  checksums.reserve(file.chunk_xxh3.size() * kHexDigits);
  for (const uint64_t checksum : file.chunk_xxh3) checksums += Hex(checksum);
  return Json{{"name", file.name},
              {"size_bytes", file.size_bytes},
              {"data_offset", file.data_offset},
              {"chunk_bytes", file.chunk_bytes},
              {"chunk_xxh3", std::move(checksums)}};
}

absl::StatusOr<FileEntry> ParseFileEntry(const Json& json, const std::string& expected_name,
                                         absl::string_view what) {
  FileEntry file;
  TRAINCTL_ASSIGN_OR_RETURN(file.name, JsonString(json, "name", what));
  TRAINCTL_ASSIGN_OR_RETURN(file.size_bytes, JsonInt(json, "size_bytes", what));
  TRAINCTL_ASSIGN_OR_RETURN(file.data_offset, JsonInt(json, "data_offset", what));
  TRAINCTL_ASSIGN_OR_RETURN(file.chunk_bytes, JsonInt(json, "chunk_bytes", what));
  TRAINCTL_ASSIGN_OR_RETURN(const std::string checksums, JsonString(json, "chunk_xxh3", what));
  // Only the fixed names are taken, so a manifest cannot point outside its folder.
  if (file.name != expected_name) {
    return BadDataError(absl::StrCat(what, ": file '", file.name, "' should be '", expected_name, "'"));
  }
  const bool power_of_two = file.chunk_bytes > 0 && (file.chunk_bytes & (file.chunk_bytes - 1)) == 0;
  if (!power_of_two || file.chunk_bytes < kMinChunkBytes || file.chunk_bytes > kMaxChunkBytes) {
    return BadDataError(
        absl::StrCat(what, ": ", file.name, ": chunk_bytes ", file.chunk_bytes, " is out of range"));
  }
  if (file.data_offset < 8 || file.data_offset % 8 != 0 || file.size_bytes < file.data_offset) {
    return BadDataError(absl::StrCat(what, ": ", file.name, ": data_offset ", file.data_offset,
                                     " does not fit a file of ", file.size_bytes, " bytes"));
  }
  const uint64_t num_chunks = (static_cast<uint64_t>(file.size_bytes) + file.chunk_bytes - 1) /
                              static_cast<uint64_t>(file.chunk_bytes);
  if (checksums.size() % kHexDigits != 0 || checksums.size() / kHexDigits != num_chunks) {
    return BadDataError(absl::StrCat(what, ": ", file.name, ": ", checksums.size() / kHexDigits,
                                     " checksums for ", num_chunks, " chunks"));
  }
  file.chunk_xxh3.resize(num_chunks);
  for (size_t i = 0; i < num_chunks; ++i) {
    const absl::string_view digits = absl::string_view(checksums).substr(i * kHexDigits, kHexDigits);
    if (!absl::SimpleHexAtoi(digits, &file.chunk_xxh3[i])) {
      return BadDataError(absl::StrCat(what, ": ", file.name, ": '", digits, "' is not a checksum"));
    }
  }
  return file;
}

// Name, dtype and shape; the result covers the whole tensor.
absl::StatusOr<Slice> ParseSlice(const Json& json, absl::string_view what) {
  Slice tensor;
  TRAINCTL_ASSIGN_OR_RETURN(tensor.name, JsonString(json, "name", what));
  TRAINCTL_ASSIGN_OR_RETURN(const std::string dtype, JsonString(json, "dtype", what));
  const std::string where = absl::StrCat(what, ": tensor '", tensor.name, "'");
  absl::StatusOr<DType> parsed = ParseDType(dtype);
  if (!parsed.ok()) return Annotate(parsed.status(), where);
  tensor.dtype = *parsed;
  const auto shape = json.find("shape");
  if (shape == json.end() || !shape->is_array()) return BadDataError(absl::StrCat(where, " has no shape"));
  if (shape->size() > kMaxDims)
    return BadDataError(absl::StrCat(where, " has ", shape->size(), " dimensions, at most ", kMaxDims));
  for (const Json& dim : *shape) {
    if (!dim.is_number_unsigned() || dim.get<uint64_t>() > uint64_t{INT64_MAX}) {
      return BadDataError(absl::StrCat(where, ": bad shape"));
    }
    tensor.shape.push_back(dim.get<int64_t>());
  }
  const absl::StatusOr<int64_t> num_bytes = TensorBytes(tensor.dtype, tensor.shape);
  if (!num_bytes.ok()) return Annotate(num_bytes.status(), where);
  tensor.box = layout::WholeBox(tensor.shape);
  return tensor;
}

// A list of whole numbers.
absl::StatusOr<std::vector<int64_t>> ParseNumbers(const Json& json, size_t expected,
                                                  absl::string_view where) {
  std::vector<int64_t> numbers;
  if (!json.is_array() || json.size() != expected) {
    return BadDataError(absl::StrCat(where, ": a piece does not consist of ", expected, " numbers"));
  }
  for (const Json& number : json) {
    if (!number.is_number_unsigned() || number.get<uint64_t>() > uint64_t{INT64_MAX}) {
      return BadDataError(absl::StrCat(where, ": a piece contains something other than whole numbers"));
    }
    numbers.push_back(number.get<int64_t>());
  }
  return numbers;
}

absl::Status CheckPieceInFile(const Piece& piece, DType dtype, const FileEntry& file,
                              absl::string_view where) {
  const int64_t width = DTypeBytes(dtype), count = piece.box.Count();
  const int64_t data_bytes = file.size_bytes - file.data_offset;
  int64_t num_bytes = 0, end = 0;
  if (piece.offset_bytes % width != 0 || __builtin_mul_overflow(count, width, &num_bytes) ||
      __builtin_add_overflow(piece.offset_bytes, num_bytes, &end) || end > data_bytes) {
    return BadDataError(absl::StrCat(where, ": ", count, " elements at byte ", piece.offset_bytes,
                                     " do not lie within the ", data_bytes, " data bytes of ", file.name));
  }
  return absl::OkStatus();
}

// [[begin, end], ...], one pair per dimension.
absl::StatusOr<layout::Box> ParseBox(const Json& json, const Slice& tensor, absl::string_view where) {
  layout::Box box;
  if (!json.is_array()) return BadDataError(absl::StrCat(where, ": a piece has no box"));
  for (const Json& pair : json) {
    TRAINCTL_ASSIGN_OR_RETURN(const std::vector<int64_t> dim, ParseNumbers(pair, 2, where));
    box.dims.push_back({dim[0], dim[1]});
  }
  if (!layout::Contains(tensor.box, box)) {
    return BadDataError(absl::StrCat(where, ": the piece ", box.ToString(), " does not lie within ",
                                     ShapeText(tensor.shape)));
  }
  return box;
}

// [file, offset_bytes, box]
absl::StatusOr<Piece> ParsePiece(const Json& json, const Slice& tensor, absl::string_view where) {
  if (!json.is_array() || json.size() != 3)
    return BadDataError(absl::StrCat(where, ": a piece is not [file, offset_bytes, box]"));
  TRAINCTL_ASSIGN_OR_RETURN(const std::vector<int64_t> place,
                            ParseNumbers(Json::array({json[0], json[1]}), 2, where));
  if (place[0] > INT32_MAX) return BadDataError(absl::StrCat(where, ": a piece names file ", place[0]));
  TRAINCTL_ASSIGN_OR_RETURN(layout::Box box, ParseBox(json[2], tensor, where));
  return Piece{std::move(box), static_cast<int>(place[0]), place[1]};
}

// [file, begin, count, offset_bytes] of format 1, the elements [begin, begin + count) of the flattened
// tensor: a few boxes, one after another.
absl::StatusOr<std::vector<Piece>> ParseRange(const Json& json, const Slice& tensor,
                                              absl::string_view where) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::vector<int64_t> numbers, ParseNumbers(json, 4, where));
  const int64_t file = numbers[0], begin = numbers[1], count = numbers[2];
  const int64_t total = tensor.count();
  if (file > INT32_MAX) return BadDataError(absl::StrCat(where, ": a piece names file ", file));
  if (count < 1 || count > total || begin > total - count) {
    return BadDataError(absl::StrCat(where, ": a piece of ", count, " elements from ", begin,
                                     " onward does not lie within ", ShapeText(tensor.shape)));
  }
  std::vector<Piece> pieces;
  int64_t offset_bytes = numbers[3];
  for (layout::Box& box : layout::BoxesOfRange(tensor.shape, begin, count)) {
    const int64_t num_bytes = box.Count() * DTypeBytes(tensor.dtype);
    pieces.push_back({std::move(box), static_cast<int>(file), offset_bytes});
    if (__builtin_add_overflow(offset_bytes, num_bytes, &offset_bytes))
      return BadDataError(absl::StrCat(where, ": a piece does not lie within a file"));
  }
  return pieces;
}

// As pieces that are not empty and lie within the tensor hold each element once.
absl::Status CheckCoverage(const std::vector<Piece>& pieces, int64_t total, absl::string_view where) {
  int64_t covered = 0;
  for (const Piece& piece : pieces) {
    const int64_t count = piece.box.Count();
    if (count > total - covered || count == 0) {
      return BadDataError(absl::StrCat(where, ": the pieces do not cover each of its ", total,
                                       " elements exactly once (at ", piece.box.ToString(), ")"));
    }
    covered += count;
  }
  if (covered != total)
    return BadDataError(absl::StrCat(where, ": the pieces cover ", covered, " of its ", total, " elements"));
  if (const auto overlap = FindOverlap(pieces)) {
    return BadDataError(absl::StrCat(where, ": the pieces do not cover each of its ", total,
                                     " elements exactly once (at ", pieces[overlap->first].box.ToString(),
                                     " and ", pieces[overlap->second].box.ToString(), ")"));
  }
  return absl::OkStatus();
}

Json JsonOf(const layout::Box& box) {
  Json json = Json::array();
  for (const layout::Interval& dim : box.dims) json.push_back(Json::array({dim.begin, dim.end}));
  return json;
}

const Json* FindArray(const Json& json, const char* key) {
  const auto it = json.find(key);
  return it == json.end() || !it->is_array() ? nullptr : &*it;
}

absl::StatusOr<int64_t> ParseFormat(const Json& json, absl::string_view what) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::string format, JsonString(json, "format", what));
  int64_t version = 0;
  absl::string_view digits = format;
  if (!absl::ConsumePrefix(&digits, kFormatPrefix) || !absl::SimpleAtoi(digits, &version) || version < 1) {
    return BadDataError(absl::StrCat(what, ": format '", format, "' is not a checkpoint format"));
  }
  if (version > kFormatVersion) {
    return EnvironmentError(absl::StrCat(what, ": written in format ", format, ", which is newer than ",
                                         kFormatPrefix, kFormatVersion,
                                         ", the newest that this trainctl reads; use a newer trainctl"));
  }
  return version;
}

absl::Status ParseTensorPieces(const Json& json, int64_t version, absl::string_view what,
                               Manifest& manifest) {
  TRAINCTL_ASSIGN_OR_RETURN(Slice tensor, ParseSlice(json, what));
  const std::string where = absl::StrCat(what, ": tensor '", tensor.name, "'");
  const Json* list = FindArray(json, "pieces");
  if (list == nullptr) return BadDataError(absl::StrCat(where, " has no pieces"));
  std::vector<Piece> pieces;
  for (const Json& item : *list) {
    std::vector<Piece> parts;
    if (version == kRangesVersion) {
      TRAINCTL_ASSIGN_OR_RETURN(parts, ParseRange(item, tensor, where));
    } else {
      TRAINCTL_ASSIGN_OR_RETURN(Piece piece, ParsePiece(item, tensor, where));
      parts.push_back(std::move(piece));
    }
    for (Piece& piece : parts) {
      if (piece.file >= static_cast<int>(manifest.files.size())) {
        return BadDataError(
            absl::StrCat(where, ": a piece names file ", piece.file, " of ", manifest.files.size()));
      }
      TRAINCTL_RETURN_IF_ERROR(CheckPieceInFile(piece, tensor.dtype, manifest.files[piece.file], where));
      pieces.push_back(std::move(piece));
    }
  }
  TRAINCTL_RETURN_IF_ERROR(CheckCoverage(pieces, tensor.count(), where));
  manifest.tensors.push_back(std::move(tensor));
  manifest.pieces.push_back(std::move(pieces));
  return absl::OkStatus();
}

}  // namespace

std::optional<std::pair<size_t, size_t>> FindOverlap(const std::vector<Piece>& pieces) {
  std::vector<layout::Box> boxes;
  for (const Piece& piece : pieces) boxes.push_back(piece.box);
  return layout::FindOverlap(boxes);
}

std::string RankFileName(int rank) { return absl::StrFormat("rank-%05d.safetensors", rank); }
std::string RankIndexName(int rank) { return absl::StrFormat("rank-%05d.index.json", rank); }

absl::StatusOr<std::string> FormatManifest(const Manifest& manifest) {
  TRAINCTL_ASSIGN_OR_RETURN(Json state, ParseJson(manifest.meta.state_json, "checkpoint state"));
  if (!state.is_object()) return BadDataError("checkpoint state: not a JSON object");
  Json json = {{"format", absl::StrCat(kFormatPrefix, kFormatVersion)},
               {"step", manifest.meta.step},
               {"world_size", manifest.world_size},
               {"state", std::move(state)}};
  Json& files = json["files"] = Json::array();
  for (const FileEntry& file : manifest.files) {
    TRAINCTL_ASSIGN_OR_RETURN(Json entry, JsonOf(file));
    files.push_back(std::move(entry));
  }
  Json& tensors = json["tensors"] = Json::array();
  for (size_t i = 0; i < manifest.tensors.size(); ++i) {
    const Slice& tensor = manifest.tensors[i];
    Json pieces = Json::array();
    for (const Piece& piece : manifest.pieces[i]) {
      pieces.push_back(Json::array({piece.file, piece.offset_bytes, JsonOf(piece.box)}));
    }
    tensors.push_back(Json{{"name", tensor.name},
                           {"dtype", std::string(DTypeName(tensor.dtype))},
                           {"shape", tensor.shape},
                           {"pieces", std::move(pieces)}});
  }
  return Seal(json);
}

absl::StatusOr<Manifest> ParseManifest(absl::string_view text, absl::string_view what) {
  TRAINCTL_RETURN_IF_ERROR(RefuseLfsPointer(text, what));
  TRAINCTL_RETURN_IF_ERROR(CheckSeal(text, what));
  TRAINCTL_ASSIGN_OR_RETURN(const Json json, ParseJson(text, what, 96));
  TRAINCTL_ASSIGN_OR_RETURN(const int64_t version, ParseFormat(json, what));
  Manifest manifest;
  TRAINCTL_ASSIGN_OR_RETURN(manifest.meta.step, JsonInt(json, "step", what));
  TRAINCTL_ASSIGN_OR_RETURN(const int64_t world_size, JsonInt(json, "world_size", what));
  const auto state = json.find("state");
  const Json* files = FindArray(json, "files");
  const Json* tensors = FindArray(json, "tensors");
  if (state == json.end() || !state->is_object() || files == nullptr || tensors == nullptr) {
    return BadDataError(absl::StrCat(what, ": state, files or tensors is missing"));
  }
  if (manifest.meta.step < 0 || world_size < 1 || world_size != static_cast<int64_t>(files->size())) {
    return BadDataError(absl::StrCat(what, ": step ", manifest.meta.step, ", ", files->size(),
                                     " files for world_size ", world_size));
  }
  manifest.world_size = static_cast<int>(world_size);
  manifest.meta.state_json = FormatJson(*state);
  for (const Json& entry : *files) {
    const std::string expected = RankFileName(static_cast<int>(manifest.files.size()));
    TRAINCTL_ASSIGN_OR_RETURN(FileEntry file, ParseFileEntry(entry, expected, what));
    manifest.files.push_back(std::move(file));
  }
  absl::flat_hash_map<std::string, int> seen;
  for (const Json& entry : *tensors) {
    TRAINCTL_RETURN_IF_ERROR(ParseTensorPieces(entry, version, what, manifest));
    const std::string& name = manifest.tensors.back().name;
    if (!seen.emplace(name, 0).second) {
      return BadDataError(absl::StrCat(what, ": tensor '", name, "' is listed twice"));
    }
  }
  return manifest;
}

absl::StatusOr<std::string> FormatRankIndex(const RankIndex& index) {
  TRAINCTL_ASSIGN_OR_RETURN(Json file, JsonOf(index.file));
  Json json = {{"format", std::string(kIndexFormat)}, {"rank", index.rank}, {"file", std::move(file)}};
  Json& slices = json["slices"] = Json::array();
  for (size_t i = 0; i < index.slices.size(); ++i) {
    const Slice& slice = index.slices[i];
    slices.push_back(Json{{"name", slice.name},
                          {"dtype", std::string(DTypeName(slice.dtype))},
                          {"shape", slice.shape},
                          {"piece", Json::array({index.rank, index.offset_bytes[i], JsonOf(slice.box)})}});
  }
  return Seal(json);
}

absl::StatusOr<RankIndex> ParseRankIndex(absl::string_view text, absl::string_view what) {
  TRAINCTL_RETURN_IF_ERROR(CheckSeal(text, what));
  TRAINCTL_ASSIGN_OR_RETURN(const Json json, ParseJson(text, what, 8));
  TRAINCTL_ASSIGN_OR_RETURN(const std::string format, JsonString(json, "format", what));
  if (format != kIndexFormat) return BadDataError(absl::StrCat(what, ": format '", format, "' is unknown"));
  RankIndex index;
  TRAINCTL_ASSIGN_OR_RETURN(const int64_t rank, JsonInt(json, "rank", what));
  const auto file = json.find("file");
  const Json* slices = FindArray(json, "slices");
  if (rank < 0 || rank > INT32_MAX || file == json.end() || slices == nullptr) {
    return BadDataError(absl::StrCat(what, ": rank, file or slices is missing"));
  }
  index.rank = static_cast<int>(rank);
  TRAINCTL_ASSIGN_OR_RETURN(index.file, ParseFileEntry(*file, RankFileName(index.rank), what));
  for (const Json& entry : *slices) {
    TRAINCTL_ASSIGN_OR_RETURN(Slice slice, ParseSlice(entry, what));
    const std::string where = absl::StrCat(what, ": tensor '", slice.name, "'");
    const auto piece_json = entry.find("piece");
    if (piece_json == entry.end()) return BadDataError(absl::StrCat(where, " has no piece"));
    TRAINCTL_ASSIGN_OR_RETURN(Piece piece, ParsePiece(*piece_json, slice, where));
    TRAINCTL_RETURN_IF_ERROR(CheckPieceInFile(piece, slice.dtype, index.file, where));
    slice.box = std::move(piece.box);
    index.slices.push_back(std::move(slice));
    index.offset_bytes.push_back(piece.offset_bytes);
  }
  return index;
}

}  // namespace trainctl::checkpoint
