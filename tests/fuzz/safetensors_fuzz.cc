// libFuzzer: safetensors headers and Hugging Face shard indexes from memory. What is accepted must
// keep what the parsers promise.

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "checkpoint/model_folder.h"
#include "checkpoint/safetensors.h"

namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

void ParseFile(absl::Span<const std::byte> bytes) {
  using namespace trainctl::checkpoint;
  const int64_t file_bytes = static_cast<int64_t>(bytes.size());
  const auto length = ParseSafetensorsLength(bytes.subspan(0, 8), file_bytes, "fuzz");
  if (!length.ok()) return;
  const absl::string_view json(reinterpret_cast<const char*>(bytes.data()) + 8, static_cast<size_t>(*length));
  auto header = ParseSafetensorsHeader(json, file_bytes, "fuzz");
  if (!header.ok()) return;
  int64_t end = 0;
  for (const TensorInfo& tensor : header->tensors) {
    Require(tensor.offset_bytes == end && tensor.num_bytes >= 0);
    end += tensor.num_bytes;
  }
  Require(header->data_offset + end == file_bytes);
  // What was read can be written and read again, unless a name is one that is not written (empty).
  std::vector<TensorInfo> tensors = header->tensors;
  const auto text = FormatSafetensorsHeader(header->metadata, tensors);
  if (!text.ok()) return;
  const auto again = ParseSafetensorsHeader(absl::string_view(*text).substr(8),
                                            static_cast<int64_t>(text->size()) + end, "fuzz");
  Require(again.ok() && again->tensors.size() == tensors.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t num_bytes) {
  const absl::string_view text(reinterpret_cast<const char*>(data), num_bytes);
  ParseFile({reinterpret_cast<const std::byte*>(data), num_bytes});
  // The header without its length, which a mutation would rarely get right.
  (void)trainctl::checkpoint::ParseSafetensorsHeader(text, static_cast<int64_t>(num_bytes) + 8 + 16, "fuzz");
  const auto index = trainctl::checkpoint::ParseModelIndex(text, "fuzz");
  if (index.ok()) {
    for (const auto& [tensor, file] : *index) Require(file.find('/') == std::string::npos && file != "..");
  }
  return 0;
}
