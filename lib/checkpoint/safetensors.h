// The safetensors container: an 8-byte little-endian header length, a JSON header that names each
// tensor's type, shape and byte range, then the tensors' bytes without gaps. This file deals with
// headers in memory; model_folder.h with Hugging Face folders. Pure functions; thread safe.
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

constexpr int64_t kMaxSafetensorsHeaderBytes = 100'000'000;  // the limit that other readers have

struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  int64_t offset_bytes = 0;  // within the data area
  int64_t num_bytes = 0;
};

struct SafetensorsHeader {
  std::vector<std::pair<std::string, std::string>> metadata;  // "__metadata__", sorted by key
  std::vector<TensorInfo> tensors;                            // in the order of their bytes
  int64_t data_offset = 0;                                    // where the data area begins in the file
  int64_t data_bytes = 0;
};

// The product of `shape`; BadDataError when a dimension is negative or it does not fit in int64.
absl::StatusOr<int64_t> NumElements(absl::Span<const int64_t> shape);
// NumElements * DTypeBytes, with the same checks.
absl::StatusOr<int64_t> TensorBytes(DType dtype, absl::Span<const int64_t> shape);
std::string ShapeText(absl::Span<const int64_t> shape);  // "[2, 3]"

// Length of the JSON from the first 8 bytes of a file of `file_bytes` bytes, checked against both limits.
absl::StatusOr<int64_t> ParseSafetensorsLength(absl::Span<const std::byte> first_8_bytes, int64_t file_bytes,
                                               absl::string_view what);

// Parses the JSON header (without the length) of a file of `file_bytes` bytes. BadDataError, beginning
// with `what`, unless every tensor has a known type, dtype x shape equal to its byte range, and the
// ranges cover the data area exactly: in order, no gap, no overlap, nothing behind the last.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view json, int64_t file_bytes,
                                                         absl::string_view what);

// Lays out `tensors` in the given order (sets offset_bytes and num_bytes) and returns the length and
// header, padded with spaces so that the data area begins at a multiple of 8. The same input gives
// the same bytes. BadDataError for a name that is empty, given twice, reserved or not UTF-8.
absl::StatusOr<std::string> FormatSafetensorsHeader(
    absl::Span<const std::pair<std::string, std::string>> metadata, std::vector<TensorInfo>& tensors);

// The order in which the reference library stores tensors: wide element types first, so that every
// tensor is aligned to its element, then by name.
bool SafetensorsOrder(const TensorInfo& a, const TensorInfo& b);

}  // namespace trainctl::checkpoint
