#include "telemetry/event_file.h"

#include <array>
#include <bit>

namespace trainctl::telemetry {
namespace {

// Field numbers of the messages, as TensorFlow's .proto files have them.
enum EventField { kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7 };
enum SessionLogField { kStatus = 1 };
constexpr uint64_t kStatusStart = 1;
enum SummaryField { kValue = 1 };
enum ValueField { kTag = 1, kSimpleValue = 2, kTensor = 8, kMetadata = 9 };
enum MetadataField { kPluginData = 1 };
enum PluginDataField { kPluginName = 1 };
enum TensorField { kDtype = 1, kShape = 2, kStringValue = 8 };
constexpr uint64_t kDtypeString = 7;
enum ShapeField { kDim = 2 };
enum DimField { kSize = 1 };

template <typename T>
void AppendLittleEndian(std::string& out, T value) {
  static_assert(std::endian::native == std::endian::little);
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// A protocol buffer message, field by field.
class Message {
 public:
  Message& Varint(int field, uint64_t value) {
    Key(field, 0);
    return Raw(value);
  }
  Message& Double(int field, double value) {
    Key(field, 1);
    AppendLittleEndian(bytes_, value);
    return *this;
  }
  Message& Float(int field, float value) {
    Key(field, 5);
    AppendLittleEndian(bytes_, value);
    return *this;
  }
  Message& Bytes(int field, absl::string_view value) {
    Key(field, 2);
    Raw(value.size());
    bytes_.append(value.data(), value.size());
    return *this;
  }
  Message& Nested(int field, const Message& value) { return Bytes(field, value.bytes_); }

  // As a record of the file.
  std::string Record() const {
    std::string out;
    AppendLittleEndian<uint64_t>(out, bytes_.size());
    AppendLittleEndian(out, Masked(Crc32c(out)));
    out += bytes_;
    AppendLittleEndian(out, Masked(Crc32c(bytes_)));
    return out;
  }

 private:
  // A checksum stored beside data that it is itself part of would be weak: the format turns it a little.
  static uint32_t Masked(uint32_t crc) { return std::rotr(crc, 15) + 0xa282ead8u; }

  void Key(int field, int wire_type) {
    Raw(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(wire_type));
  }
  Message& Raw(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>(value | 0x80));
    bytes_.push_back(static_cast<char>(value));
    return *this;
  }

  std::string bytes_;
};

Message StepEvent(double wall_time_s, int64_t step) {
  Message event;
  event.Double(kWallTime, wall_time_s);
  if (step != 0) event.Varint(kStep, static_cast<uint64_t>(step));
  return event;
}

}  // namespace

uint32_t Crc32c(absl::string_view bytes) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> made = {};
    for (uint32_t i = 0; i < made.size(); ++i) {
      uint32_t crc = i;
      for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0);
      made[i] = crc;
    }
    return made;
  }();
  uint32_t crc = ~uint32_t{0};
  for (const char byte : bytes) crc = (crc >> 8) ^ table[(crc ^ static_cast<uint8_t>(byte)) & 0xff];
  return ~crc;
}

std::string EventFileStart(double wall_time_s, int64_t first_step) {
  Message version;
  version.Double(kWallTime, wall_time_s).Bytes(kFileVersion, "brain.Event:2");
  Message start = StepEvent(wall_time_s, first_step);
  start.Nested(kSessionLog, Message().Varint(kStatus, kStatusStart));
  return version.Record() + start.Record();
}

std::string ScalarsEvent(double wall_time_s, int64_t step, absl::Span<const Scalar> scalars) {
  if (scalars.empty()) return "";
  Message summary;
  for (const Scalar& scalar : scalars) {
    Message value;
    value.Bytes(kTag, scalar.tag).Float(kSimpleValue, static_cast<float>(scalar.value));
    summary.Nested(kValue, value);
  }
  return StepEvent(wall_time_s, step).Nested(kSummary, summary).Record();
}

std::string TextEvent(double wall_time_s, int64_t step, absl::string_view tag, absl::string_view markdown) {
  Message shape;
  shape.Nested(kDim, Message().Varint(kSize, 1));
  Message tensor;
  tensor.Varint(kDtype, kDtypeString).Nested(kShape, shape).Bytes(kStringValue, markdown);
  Message metadata;
  metadata.Nested(kPluginData, Message().Bytes(kPluginName, "text"));
  Message value;
  value.Bytes(kTag, tag).Nested(kTensor, tensor).Nested(kMetadata, metadata);
  return StepEvent(wall_time_s, step).Nested(kSummary, Message().Nested(kValue, value)).Record();
}

}  // namespace trainctl::telemetry
