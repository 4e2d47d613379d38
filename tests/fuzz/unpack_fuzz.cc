// Packed data from memory, in pieces. The first byte chooses the format, the second how large the pieces are.
// An unpacker must end, within its buffers, and not stand still while it has input.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "data/unpackers.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t num_bytes) {
  if (num_bytes < 2) return 0;
  const auto unpacker =
      bytes[0] % 2 == 0 ? trainctl::data::MakeGzipUnpacker() : trainctl::data::MakeZstdUnpacker();
  const size_t piece_bytes = size_t{bytes[1]} + 1;
  const std::vector<uint8_t> packed(bytes + 2, bytes + num_bytes);
  std::vector<char> plain(piece_bytes);
  size_t unpacked = 0;
  for (size_t begin = 0; begin < packed.size(); begin += piece_bytes) {
    const size_t count = std::min(piece_bytes, packed.size() - begin);
    absl::Span<const uint8_t> piece(packed.data() + begin, count);
    while (true) {
      const size_t before = piece.size();
      const auto written = unpacker->Unpack(piece, absl::MakeSpan(plain));
      if (!written.ok()) return 0;
      if (*written > plain.size()) std::abort();
      if (*written == 0 && piece.empty()) break;
      if (*written == 0 && piece.size() == before) std::abort();
      unpacked += *written;
      if (unpacked > (size_t{1} << 22)) return 0;  // a bomb: enough seen
    }
  }
  return 0;
}
