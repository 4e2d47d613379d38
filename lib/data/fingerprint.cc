#include "data/fingerprint.h"

#include <set>
#include <utility>

#include "base/status.h"
#include "data/data_file.h"
#include "data/document_store.h"

namespace trainctl::data {

absl::StatusOr<FileFingerprint> FingerprintFile(const std::string& path) {
  TRAINCTL_ASSIGN_OR_RETURN(SequentialFile file, SequentialFile::Open(path));
  while (true) {
    TRAINCTL_ASSIGN_OR_RETURN(const absl::Span<const uint8_t> piece, file.Next());
    if (piece.empty()) return FileFingerprint{path, file.bytes_read(), file.xxh3()};
  }
}

absl::StatusOr<std::vector<FileFingerprint>> Fingerprint(const recipe::DataConfig& data) {
  std::vector<FileFingerprint> fingerprints;
  std::set<std::string> seen;
  if (data.tokenizer != "byte") {
    TRAINCTL_ASSIGN_OR_RETURN(const std::string file, tokenizer::Tokenizer::FindFile(data.tokenizer));
    TRAINCTL_ASSIGN_OR_RETURN(FileFingerprint fingerprint, FingerprintFile(file));
    fingerprints.push_back(std::move(fingerprint));
  }
  for (const auto* sources : {&data.train, &data.eval}) {
    for (const recipe::DataSource& source : *sources) {
      for (const std::string& file : source.files) {
        TRAINCTL_ASSIGN_OR_RETURN(const SourceKind kind, KindOfFile(source, file));
        std::vector<std::string> paths = {file};
        if (kind == SourceKind::kIndexed) {
          const std::string prefix = IndexedPrefix(file);
          paths = {prefix + ".bin", prefix + ".idx"};
        }
        for (const std::string& path : paths) {
          if (!seen.insert(path).second) continue;
          TRAINCTL_ASSIGN_OR_RETURN(FileFingerprint fingerprint, FingerprintFile(path));
          fingerprints.push_back(std::move(fingerprint));
        }
      }
    }
  }
  return fingerprints;
}

}  // namespace trainctl::data
