#include "data/text_markers.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "data/data_file.h"
#include "data/unpacked_file.h"

namespace trainctl::data {
namespace {

constexpr size_t kMaxFiles = 256;
constexpr size_t kCheckedBytes = size_t{1} << 20;
constexpr int64_t kPieces = 16;
constexpr int64_t kPieceBytes = static_cast<int64_t>(kCheckedBytes) / kPieces;
constexpr size_t kLeastMarkerBytes = 3;
constexpr std::array<absl::string_view, 20> kMarkers = {
    "<|endoftext|>", "<|end_of_text|>", "</s>",       "<eos>",
    "<|im_end|>",    "<|eot_id|>",      "<|eom_id|>", "<|eot|>",
    "<|EOT|>",       "<end_of_turn>",   "<|end|>",    "<|END_OF_TURN_TOKEN|>",
    "<|eos|>",       "<|end_of_turn|>", "<|return|>", "<EOS>",
    "<|eod|>",       "<EOT>",           "[EOS]",      "<｜end▁of▁sentence｜>"};

// The plain bytes at the beginning of a compressed file, up to a limit. Empty if it cannot be read.
std::string UnpackedBegin(const std::string& path) {
  std::string text;
  absl::StatusOr<UnpackedFile> file = UnpackedFile::Open(path);
  while (file.ok() && text.size() < kCheckedBytes) {
    const absl::StatusOr<absl::Span<const uint8_t>> piece = file->Next();
    if (!piece.ok() || piece->empty()) break;
    text.append(reinterpret_cast<const char*>(piece->data()), piece->size());
  }
  text.resize(std::min(text.size(), kCheckedBytes));
  return text;
}

void ReadAt(int fd, int64_t offset, int64_t count, std::string& text) {
  text.resize(static_cast<size_t>(count));
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t got =
        ::pread(fd, text.data() + done, text.size() - done, offset + static_cast<int64_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += static_cast<size_t>(got);
  }
  text.resize(done);
}

// Calls `look` with the pieces of a file that are checked: all of it if it is small, and otherwise evenly
// spaced ones, of which the last ends with the file. Of a compressed file, only the beginning is checked.
template <typename Look>
void ForEachPiece(const std::string& path, const Look& look) {
  const auto compression = CompressionOfFile(path);
  const absl::StatusOr<int64_t> bytes = CheckDataFile(path);
  if (!compression.ok() || !bytes.ok()) return;
  if (*compression != Compression::kNone) return look(UnpackedBegin(path));
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return;
  std::string text;
  if (*bytes <= static_cast<int64_t>(kCheckedBytes)) {
    ReadAt(fd, 0, *bytes, text);
    look(text);
  } else {
    const int64_t room = *bytes - kPieceBytes;
    for (int64_t i = 0; i < kPieces; ++i) {
      ReadAt(fd, room / (kPieces - 1) * i + room % (kPieces - 1) * i / (kPieces - 1), kPieceBytes, text);
      look(text);
    }
  }
  ::close(fd);
}

}  // namespace

std::vector<TextMarker> FindTextMarkers(absl::Span<const std::string> files, absl::string_view own_end) {
  std::vector<TextMarker> found;
  for (const absl::string_view marker : kMarkers) found.push_back({.marker = std::string(marker)});
  const bool is_known = std::find(kMarkers.begin(), kMarkers.end(), own_end) != kMarkers.end();
  if (!is_known && own_end.size() >= kLeastMarkerBytes) found.push_back({.marker = std::string(own_end)});
  std::string first_bytes;
  for (const TextMarker& marker : found) {
    if (first_bytes.find(marker.marker[0]) == std::string::npos) first_bytes += marker.marker[0];
  }
  const size_t num_checked = std::min(files.size(), kMaxFiles);
  for (size_t n = 0; n < num_checked; ++n) {
    const std::string& path = files[n * files.size() / num_checked];
    ForEachPiece(path, [&](absl::string_view text) {
      for (size_t at = text.find_first_of(first_bytes); at != absl::string_view::npos;
           at = text.find_first_of(first_bytes, at + 1)) {
        for (TextMarker& marker : found) {
          if (!absl::StartsWith(text.substr(at), marker.marker)) continue;
          if (marker.count++ == 0) marker.first_file = path;
        }
      }
    });
  }
  found.erase(std::remove_if(found.begin(), found.end(), [](const TextMarker& m) { return m.count == 0; }),
              found.end());
  return found;
}

std::string FormatTextMarkers(absl::Span<const TextMarker> markers) {
  if (markers.empty()) return "";
  std::string note = "the text contains ";
  for (size_t i = 0; i < markers.size(); ++i) {
    const TextMarker& found = markers[i];
    absl::StrAppend(&note,
                    i == 0                    ? ""
                    : i + 1 == markers.size() ? " and "
                                              : ", ",
                    found.marker, " (", found.count == 1 ? "once" : absl::StrCat(found.count, " times"),
                    found.count == 1 ? ", in " : ", first in ", found.first_file, ")");
  }
  return absl::StrCat(note,
                      " in the parts that were checked, but a text file is a single document, and markers do "
                      "not split it; convert the text to JSONL with one document per line");
}

}  // namespace trainctl::data
