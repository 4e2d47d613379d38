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

constexpr size_t kMaxFiles = 64;
constexpr size_t kCheckedBytes = size_t{1} << 20;
constexpr std::array<absl::string_view, 6> kMarkers = {"<|endoftext|>", "<|end_of_text|>", "</s>",
                                                       "<eos>",         "<|im_end|>",      "<|eot_id|>"};

// Up to `text.size()` bytes from the start of a plain file. Empty if it is packed or cannot be read.
absl::string_view ReadBegin(const std::string& path, std::string& text) {
  const auto compression = CompressionOfFile(path);
  if (!compression.ok() || *compression != Compression::kNone) return {};
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return {};
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::read(fd, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    done += static_cast<size_t>(count);
  }
  ::close(fd);
  return absl::string_view(text).substr(0, done);
}

}  // namespace

std::vector<TextMarker> FindTextMarkers(absl::Span<const std::string> files) {
  std::array<TextMarker, kMarkers.size()> found;
  std::string buffer(kCheckedBytes, '\0');
  for (const std::string& path : files.subspan(0, kMaxFiles)) {
    absl::string_view text = ReadBegin(path, buffer);
    for (size_t at = text.find('<'); at != absl::string_view::npos; at = text.find('<', at + 1)) {
      for (size_t i = 0; i < kMarkers.size(); ++i) {
        if (!absl::StartsWith(text.substr(at), kMarkers[i])) continue;
        if (found[i].count++ == 0) found[i].first_file = path;
      }
    }
  }
  std::vector<TextMarker> markers;
  for (size_t i = 0; i < kMarkers.size(); ++i) {
    found[i].marker = std::string(kMarkers[i]);
    if (found[i].count > 0) markers.push_back(std::move(found[i]));
  }
  return markers;
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
                      " in the parts that were checked, but a text file is one document, and a marker in it "
                      "does not end one: split the text at the markers into JSONL with a document per line");
}

}  // namespace trainctl::data
