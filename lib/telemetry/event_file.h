// TensorBoard's event files: records of the TFRecord format, each an `Event` message of TensorFlow's
// event.proto. Only what a run writes is encoded here: scalars, text, and the marks at a file's start. Pure;
// thread safe.
//
// A record: u64 length, u32 masked CRC-32C of these 8 bytes, the message, u32 masked CRC-32C of the message;
// all little-endian.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace trainctl::telemetry {

// CRC-32C (Castagnoli): 0xe3069283 for "123456789".
uint32_t Crc32c(absl::string_view bytes);

struct Scalar {
  std::string tag;
  double value = 0;  // written as a float
};

// The records that a file begins with: the version, and the mark at which readers forget steps from
// `first_step` on that they had from an older file of the folder.
std::string EventFileStart(double wall_time_s, int64_t first_step);

// One record with all scalars of a step; nothing when there are none.
std::string ScalarsEvent(double wall_time_s, int64_t step, absl::Span<const Scalar> scalars);

// One record with a text, which TensorBoard shows as Markdown.
std::string TextEvent(double wall_time_s, int64_t step, absl::string_view tag, absl::string_view markdown);

}  // namespace trainctl::telemetry
