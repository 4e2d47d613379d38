#include "data/counted_targets.h"

#include <algorithm>
#include <vector>

#include "base/status.h"

namespace trainctl::data {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 26;
constexpr int64_t kPieceTokens = int64_t{1} << 16;

// Looks for targets that count in parts of documents.
class TargetFinder {
 public:
  explicit TargetFinder(const DocumentSet& documents) : documents_(documents) {}

  // Whether one of the tokens [first, end) of a document is one.
  absl::StatusOr<bool> Finds(int64_t document, int64_t first, int64_t end) {
    while (first < end) {
      const int64_t count = std::min(kPieceTokens, end - first);
      TRAINCTL_RETURN_IF_ERROR(documents_.Read(document, first, count, tokens_.data(), learn_.data()));
      tokens_read_ += count;
      if (std::count(learn_.begin(), learn_.begin() + count, uint8_t{1}) > 0) return true;
      first += count;
    }
    return false;
  }
  bool has_read_enough() const { return tokens_read_ > kMostTokens; }

 private:
  const DocumentSet& documents_;
  std::vector<int32_t> tokens_ = std::vector<int32_t>(static_cast<size_t>(kPieceTokens));
  std::vector<uint8_t> learn_ = std::vector<uint8_t>(static_cast<size_t>(kPieceTokens));
  int64_t tokens_read_ = 0;
};

}  // namespace

absl::StatusOr<bool> HasCountedTarget(const DocumentSet& documents, Packing packing, int64_t seq_len,
                                      bool cuts) {
  TRAINCTL_RETURN_IF_ERROR(documents.CheckUnchanged());
  TargetFinder finder(documents);
  for (int64_t i = 0; i < documents.num_documents(); ++i) {
    int64_t end = documents.DocumentTokens(i);
    if (packing == Packing::kWhole && end > seq_len) {
      if (!cuts) continue;
      end = seq_len;
    }
    // A token is a target if another one of its document precedes it, or any token if attention crosses
    // documents.
    const int64_t first = packing == Packing::kContinuous && i > 0 ? 0 : 1;
    TRAINCTL_ASSIGN_OR_RETURN(const bool found, finder.Finds(i, first, end));
    if (found || finder.has_read_enough()) return true;
  }
  return false;
}

absl::StatusOr<int64_t> CountCutToPrompts(const DocumentSet& documents, int64_t seq_len) {
  TRAINCTL_RETURN_IF_ERROR(documents.CheckUnchanged());
  TargetFinder finder(documents);
  int64_t count = 0;
  for (int64_t i = 0; i < documents.num_documents() && !finder.has_read_enough(); ++i) {
    if (documents.DocumentTokens(i) <= seq_len) continue;
    TRAINCTL_ASSIGN_OR_RETURN(const bool found, finder.Finds(i, 1, seq_len));
    count += found ? 0 : 1;
  }
  return count;
}

}  // namespace trainctl::data
