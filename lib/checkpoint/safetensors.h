// The safetensors container: an 8-byte little-endian header length, a JSON header with each tensor's type,
// shape and byte range, then the tensors' bytes without gaps. This file handles headers in memory;
// model_folder.h handles Hugging Face folders. Pure functions; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/dtype.h"

namespace trainctl::checkpoint {

constexpr int64_t kMaxSafetensorsHeaderBytes = 100'000'000;  // the same limit as in other readers

struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  int64_t offset_bytes = 0;  // offset within the data area
  int64_t num_bytes = 0;
};

struct SafetensorsHeader {
  std::vector<std::pair<std::string, std::string>> metadata;  // entries of "__metadata__", sorted by key
  std::vector<TensorInfo> tensors;                            // in the order of their byte ranges
  int64_t data_offset = 0;                                    // offset of the data area within the file
  int64_t data_bytes = 0;
};

// Returns the product of `shape`. Returns BadDataError if a dimension is negative or the product overflows
// int64.
absl::StatusOr<int64_t> NumElements(absl::Span<const int64_t> shape);
// Returns NumElements * DTypeBytes, with the same checks.
absl::StatusOr<int64_t> TensorBytes(DType dtype, absl::Span<const int64_t> shape);
std::string ShapeText(absl::Span<const int64_t> shape);  // "[2, 3]"

// Parses the length of the JSON header from the first 8 bytes of a file of `file_bytes` bytes. Returns
// BadDataError if it exceeds the file's size or kMaxSafetensorsHeaderBytes.
absl::StatusOr<int64_t> ParseSafetensorsLength(absl::Span<const std::byte> first_8_bytes, int64_t file_bytes,
                                               absl::string_view what);

// Parses the JSON header (without the length) of a file of `file_bytes` bytes. Each tensor must have a known
// type and a byte range that matches its dtype and shape, and the ranges must cover the data area in order,
// without gaps, overlaps or trailing bytes. Otherwise returns a BadDataError that begins with `what`.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view json, int64_t file_bytes,
                                                         absl::string_view what);

// Lays out `tensors` in the given order by setting their offset_bytes and num_bytes. Returns the length and
// the header, which is padded with spaces to align the data area to 8 bytes. The output is deterministic.
// Returns BadDataError if a name is empty, duplicate, reserved or not UTF-8.
absl::StatusOr<std::string> FormatSafetensorsHeader(
    absl::Span<const std::pair<std::string, std::string>> metadata, std::vector<TensorInfo>& tensors);

// Whether the reference library stores `a` before `b`. It stores wide element types first, which aligns every
// tensor to its element size, and orders tensors of the same type by name.
bool SafetensorsOrder(const TensorInfo& a, const TensorInfo& b);

}  // namespace trainctl::checkpoint
