// TensorBoard's event files: TFRecord records that each contain an `Event` message of TensorFlow's
// event.proto. Encodes only the events that a run writes: scalars, text, and the events at the start of a
// file. Pure functions; thread-safe.
//
// A record consists of a u64 length, a u32 masked CRC-32C of the length, the message, and a u32 masked
// CRC-32C of the message. All numbers are little-endian.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace trainctl::telemetry {

// Returns the CRC-32C (Castagnoli) of `bytes`, which is 0xe3069283 for "123456789".
uint32_t Crc32c(absl::string_view bytes);

struct Scalar {
  std::string tag;
  double value = 0;  // written as a float
};

// Returns the records at the start of a file: the version, and a marker that tells readers to discard all
// steps from `first_step` on that they have read from older files in the folder.
std::string EventFileStart(double wall_time_s, int64_t first_step);

// Returns one record with all scalars of a step, or an empty string if there are none.
std::string ScalarsEvent(double wall_time_s, int64_t step, absl::Span<const Scalar> scalars);

// Returns one record with a text, which TensorBoard renders as Markdown.
std::string TextEvent(double wall_time_s, int64_t step, absl::string_view tag, absl::string_view markdown);

}  // namespace trainctl::telemetry
