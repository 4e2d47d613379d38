#include "checkpoint/safetensors.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/json.h"
#include "base/status.h"

namespace trainctl::checkpoint {
namespace {

constexpr absl::string_view kMetadataKey = "__metadata__";
constexpr int64_t kLengthBytes = 8;

absl::StatusOr<int64_t> NonNegative(const Json& value, absl::string_view what) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > uint64_t{INT64_MAX}) {
    return BadDataError(absl::StrCat(what, " must be a whole number from 0 to 2^63 - 1"));
  }
  return value.get<int64_t>();
}

absl::Status ParseMetadata(const Json& value, absl::string_view what, SafetensorsHeader& header) {
  if (!value.is_object()) return BadDataError(absl::StrCat(what, ": __metadata__ is not an object"));
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) {
      return BadDataError(absl::StrCat(what, ": __metadata__ '", key, "' is not a string"));
    }
    header.metadata.emplace_back(key, text.template get_ref<const std::string&>());
  }
  return absl::OkStatus();
}

absl::StatusOr<TensorInfo> ParseTensor(const std::string& name, const Json& value, absl::string_view what) {
  const std::string where = absl::StrCat(what, ": tensor '", name, "'");
  if (!value.is_object()) return BadDataError(absl::StrCat(where, " must be described by an object"));
  for (const auto& [key, unused] : value.items()) {
    if (key != "dtype" && key != "shape" && key != "data_offsets") {
      return BadDataError(absl::StrCat(where, " has the unknown field '", key, "'"));
    }
  }
  const auto dtype = value.find("dtype"), shape = value.find("shape"), offsets = value.find("data_offsets");
  if (dtype == value.end() || !dtype->is_string()) return BadDataError(absl::StrCat(where, " has no dtype"));
  if (shape == value.end() || !shape->is_array()) return BadDataError(absl::StrCat(where, " has no shape"));
  if (offsets == value.end() || !offsets->is_array() || offsets->size() != 2) {
    return BadDataError(absl::StrCat(where, " has no data_offsets [begin, end]"));
  }
  TensorInfo tensor;
  tensor.name = name;
  absl::StatusOr<DType> parsed = ParseDType(dtype->get_ref<const std::string&>());
  if (!parsed.ok()) return Annotate(parsed.status(), where);
  tensor.dtype = *parsed;
  for (const Json& dim : *shape) {
    TRAINCTL_ASSIGN_OR_RETURN(const int64_t extent, NonNegative(dim, absl::StrCat(where, ": a dimension")));
    tensor.shape.push_back(extent);
  }
  TRAINCTL_ASSIGN_OR_RETURN(const int64_t begin,
                            NonNegative((*offsets)[0], absl::StrCat(where, ": an offset")));
  TRAINCTL_ASSIGN_OR_RETURN(const int64_t end,
                            NonNegative((*offsets)[1], absl::StrCat(where, ": an offset")));
  const absl::StatusOr<int64_t> num_bytes = TensorBytes(tensor.dtype, tensor.shape);
  if (!num_bytes.ok()) return Annotate(num_bytes.status(), where);
  if (end < begin || end - begin != *num_bytes) {
    return BadDataError(absl::StrCat(where, ": ", DTypeName(tensor.dtype), " ", ShapeText(tensor.shape),
                                     " is ", *num_bytes, " bytes, but data_offsets are [", begin, ", ", end,
                                     "]"));
  }
  tensor.offset_bytes = begin;
  tensor.num_bytes = *num_bytes;
  return tensor;
}

// Position of a dtype in the order of the reference library, narrow ones first.
int StorageRank(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return 0;
    case DType::kU8:
      return 1;
    case DType::kU16:
      return 2;
    case DType::kF16:
      return 3;
    case DType::kBF16:
      return 4;
    case DType::kI32:
      return 5;
    case DType::kF32:
      return 6;
    case DType::kF64:
      return 7;
    case DType::kI64:
      return 8;
  }
  return 0;
}

}  // namespace

absl::StatusOr<int64_t> NumElements(absl::Span<const int64_t> shape) {
  int64_t count = 1;
  bool overflow = false, empty = false;
  for (const int64_t extent : shape) {
    if (extent < 0)
      return BadDataError(absl::StrCat("shape ", ShapeText(shape), " has a negative dimension"));
    empty |= extent == 0;
    overflow |= __builtin_mul_overflow(count, extent, &count);
  }
  if (empty) return 0;
  if (overflow) return BadDataError(absl::StrCat("shape ", ShapeText(shape), " has more than 2^63 elements"));
  return count;
}

absl::StatusOr<int64_t> TensorBytes(DType dtype, absl::Span<const int64_t> shape) {
  TRAINCTL_ASSIGN_OR_RETURN(const int64_t count, NumElements(shape));
  int64_t num_bytes = 0;
  if (__builtin_mul_overflow(count, DTypeBytes(dtype), &num_bytes)) {
    return BadDataError(absl::StrCat("shape ", ShapeText(shape), " has more than 2^63 bytes"));
  }
  return num_bytes;
}

std::string ShapeText(absl::Span<const int64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

absl::StatusOr<int64_t> ParseSafetensorsLength(absl::Span<const std::byte> first_8_bytes, int64_t file_bytes,
                                               absl::string_view what) {
  if (file_bytes < kLengthBytes || first_8_bytes.size() < kLengthBytes) {
    return BadDataError(absl::StrCat(what, ": not a safetensors file: only ", file_bytes, " bytes"));
  }
  uint64_t length = 0;
  for (int i = 0; i < kLengthBytes; ++i) length |= std::to_integer<uint64_t>(first_8_bytes[i]) << (8 * i);
  if (length > uint64_t{kMaxSafetensorsHeaderBytes}) {
    return BadDataError(absl::StrCat(what, ": not a safetensors file, or damaged: header of ", length,
                                     " bytes, but the limit is ", kMaxSafetensorsHeaderBytes));
  }
  if (static_cast<int64_t>(length) > file_bytes - kLengthBytes) {
    return BadDataError(
        absl::StrCat(what, ": truncated: header of ", length, " bytes in a file of ", file_bytes));
  }
  return static_cast<int64_t>(length);
}

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view json, int64_t file_bytes,
                                                         absl::string_view what) {
  TRAINCTL_ASSIGN_OR_RETURN(const Json root, ParseJson(json, absl::StrCat(what, ": header"), 4));
  if (!root.is_object()) return BadDataError(absl::StrCat(what, ": the header is not a JSON object"));
  SafetensorsHeader header;
  header.data_offset = kLengthBytes + static_cast<int64_t>(json.size());
  header.data_bytes = file_bytes - header.data_offset;
  if (header.data_bytes < 0) return BadDataError(absl::StrCat(what, ": shorter than its header"));
  for (const auto& [name, value] : root.items()) {
    if (name == kMetadataKey) {
      TRAINCTL_RETURN_IF_ERROR(ParseMetadata(value, what, header));
      continue;
    }
    TRAINCTL_ASSIGN_OR_RETURN(TensorInfo tensor, ParseTensor(name, value, what));
    header.tensors.push_back(std::move(tensor));
  }
  std::stable_sort(
      header.tensors.begin(), header.tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
        return a.offset_bytes != b.offset_bytes ? a.offset_bytes < b.offset_bytes : a.num_bytes < b.num_bytes;
      });
  int64_t covered = 0;
  for (const TensorInfo& tensor : header.tensors) {
    if (tensor.offset_bytes != covered) {
      return BadDataError(absl::StrCat(what, ": tensor '", tensor.name, "' begins at byte ",
                                       tensor.offset_bytes, " of the data, but the previous one ends at ",
                                       covered,
                                       tensor.offset_bytes < covered ? ": they overlap" : ": a gap"));
    }
    covered += tensor.num_bytes;  // cannot overflow: equals data_offsets[1]
  }
  if (covered != header.data_bytes) {
    return BadDataError(absl::StrCat(what, covered > header.data_bytes ? ": truncated" : ": too long",
                                     ": the tensors end at byte ", covered, " of the data, but the file has ",
                                     header.data_bytes));
  }
  return header;
}

absl::StatusOr<std::string> FormatSafetensorsHeader(
    absl::Span<const std::pair<std::string, std::string>> metadata, std::vector<TensorInfo>& tensors) {
  const auto quoted = [](const std::string& text) -> absl::StatusOr<std::string> {
    absl::StatusOr<std::string> json = FormatExactJson(Json(text));
    if (!json.ok()) return BadDataError(absl::StrCat("'", text, "' is not valid UTF-8"));
    return json;
  };
  std::string json = "{";
  if (!metadata.empty()) {
    absl::StrAppend(&json, "\"", kMetadataKey, "\":{");
    absl::string_view separator;
    for (const auto& [key, value] : metadata) {
      TRAINCTL_ASSIGN_OR_RETURN(const std::string quoted_key, quoted(key));
      TRAINCTL_ASSIGN_OR_RETURN(const std::string quoted_value, quoted(value));
      absl::StrAppend(&json, separator, quoted_key, ":", quoted_value);
      separator = ",";
    }
    json += "}";
  }
  absl::flat_hash_set<std::string> names;
  int64_t offset = 0;
  for (TensorInfo& tensor : tensors) {
    if (tensor.name.empty() || tensor.name == kMetadataKey) {
      return BadDataError(absl::StrCat("'", tensor.name, "' is not a valid tensor name"));
    }
    if (!names.insert(tensor.name).second) {
      return BadDataError(absl::StrCat("two tensors are named '", tensor.name, "'"));
    }
    const absl::StatusOr<int64_t> num_bytes = TensorBytes(tensor.dtype, tensor.shape);
    if (!num_bytes.ok()) return Annotate(num_bytes.status(), absl::StrCat("tensor '", tensor.name, "'"));
    tensor.offset_bytes = offset;
    tensor.num_bytes = *num_bytes;
    if (__builtin_add_overflow(offset, *num_bytes, &offset)) {
      return BadDataError("the tensors have more than 2^63 bytes");
    }
    TRAINCTL_ASSIGN_OR_RETURN(const std::string quoted_name, quoted(tensor.name));
    absl::StrAppend(&json, json.size() > 1 ? "," : "", quoted_name, ":{\"dtype\":\"", DTypeName(tensor.dtype),
                    "\",\"shape\":[", absl::StrJoin(tensor.shape, ","), "],\"data_offsets\":[",
                    tensor.offset_bytes, ",", offset, "]}");
  }
  json += "}";
  json.append((8 - json.size() % 8) % 8, ' ');
  if (static_cast<int64_t>(json.size()) > kMaxSafetensorsHeaderBytes) {
    return BadDataError(absl::StrCat("a safetensors header of ", json.size(), " bytes exceeds the limit of ",
                                     kMaxSafetensorsHeaderBytes));
  }
  std::string header;
  for (int i = 0; i < kLengthBytes; ++i) header.push_back(static_cast<char>(json.size() >> (8 * i)));
  return header + json;
}

bool SafetensorsOrder(const TensorInfo& a, const TensorInfo& b) {
  const int rank_a = StorageRank(a.dtype), rank_b = StorageRank(b.dtype);
  return rank_a != rank_b ? rank_a > rank_b : a.name < b.name;
}

}  // namespace trainctl::checkpoint
