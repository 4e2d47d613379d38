// libFuzzer: manifests and rank indexes from memory, with and without a right checksum (a mutation
// would never find one, so the input is sealed as well).

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "checkpoint/block_writer.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"

namespace {

using namespace trainctl::checkpoint;

void Require(bool condition) {
  if (!condition) std::abort();
}

void CheckManifest(const Manifest& manifest) {
  Require(manifest.tensors.size() == manifest.pieces.size());
  for (size_t i = 0; i < manifest.tensors.size(); ++i) {
    const Slice& tensor = manifest.tensors[i];
    int64_t covered = 0;
    for (const Piece& piece : manifest.pieces[i]) {
      Require(trainctl::layout::Contains(tensor.box, piece.box) && piece.box.Count() > 0);
      const FileEntry& file = manifest.files.at(static_cast<size_t>(piece.file));
      const int64_t end = piece.offset_bytes + piece.box.Count() * trainctl::DTypeBytes(tensor.dtype);
      Require(piece.offset_bytes >= 0 && end <= file.size_bytes - file.data_offset);
      covered += piece.box.Count();
    }
    Require(covered == tensor.count());
    for (size_t a = 0; a < manifest.pieces[i].size() && manifest.pieces[i].size() < 100; ++a) {
      for (size_t b = 0; b < a; ++b)
        Require(Intersect(manifest.pieces[i][a].box, manifest.pieces[i][b].box).Count() == 0);
    }
  }
  const auto text = FormatManifest(manifest);
  Require(text.ok() && ParseManifest(*text, "fuzz").ok());
}

void Parse(absl::string_view text) {
  const auto manifest = ParseManifest(text, "fuzz");
  if (manifest.ok()) CheckManifest(*manifest);
  auto index = ParseRankIndex(text, "fuzz");
  if (!index.ok()) return;
  index->rank = 0;
  (void)MergeIndexes({}, {*index});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t num_bytes) {
  const std::string text(reinterpret_cast<const char*>(data), num_bytes);
  Parse(text);
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx",
                static_cast<unsigned long long>(ChecksumXxh3(text.data(), text.size())));
  Parse(text + ",\"manifest_xxh3\":\"" + digits + "\"}\n");
  return 0;
}
