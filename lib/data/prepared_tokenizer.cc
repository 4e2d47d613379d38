#include "data/prepared_tokenizer.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>

#include "absl/strings/str_format.h"
#include "base/files.h"
#include "base/json.h"
#include "base/lfs_pointer.h"
#include "base/status.h"
#include "data/document_store.h"
#include "data/fingerprint.h"
#include "data/indexed_dataset.h"
#include "tokenizer/tokenizer.h"

namespace trainctl::data {
namespace {

constexpr int64_t kMaxReportBytes = int64_t{256} << 20;

struct Origin {
  std::string name;    // as it was named then; "byte"
  std::string digest;  // of the file; empty for bytes
  int64_t vocab = 0;   // ids are below; 0 where it is not said
};

std::string Text(const Origin& origin) {
  return absl::StrCat("'", origin.name, "'",
                      origin.digest.empty() ? "" : absl::StrCat(" (XXH3 ", origin.digest, ")"));
}

// Nothing where there is no report of this very data file.
std::optional<Origin> OriginOf(const std::string& prefix) {
  const absl::StatusOr<int64_t> data_bytes = FileBytes(prefix + ".bin");
  const std::string path = prefix + ".json";
  std::error_code ignored;
  if (!data_bytes.ok() || !std::filesystem::is_regular_file(path, ignored)) return std::nullopt;
  const absl::StatusOr<std::string> text = ReadFile(path, kMaxReportBytes);
  if (!text.ok()) return std::nullopt;
  const absl::StatusOr<Json> json = ParseJson(*text, path);
  if (!json.ok() || !json->is_object()) return std::nullopt;
  const absl::StatusOr<std::string> schema = JsonString(*json, "schema", path);
  if (!schema.ok() || *schema != "trainctl.dataset.v1") return std::nullopt;
  const auto data = json->find("data");
  if (data == json->end() || !data->is_object()) return std::nullopt;
  const absl::StatusOr<int64_t> said_bytes = JsonInt(*data, "bytes", path);
  if (!said_bytes.ok() || *said_bytes != *data_bytes) return std::nullopt;
  const absl::StatusOr<std::string> name = JsonString(*json, "tokenizer", path);
  if (!name.ok()) return std::nullopt;
  const int64_t vocab = JsonInt(*json, "vocab", path).value_or(0);
  const auto file = json->find("tokenizer_file");
  if (file == json->end() || !file->is_object()) return Origin{*name, "", vocab};
  const absl::StatusOr<std::string> digest = JsonString(*file, "xxh3", path);
  if (!digest.ok()) return std::nullopt;
  return Origin{*name, *digest, vocab};
}

absl::StatusOr<std::set<std::string>> PrefixesOf(const recipe::DataConfig& data) {
  std::set<std::string> prefixes;
  for (const auto* sources : {&data.train, &data.eval}) {
    for (const recipe::DataSource& source : *sources) {
      for (const std::string& file : source.files) {
        TRAINCTL_ASSIGN_OR_RETURN(const SourceKind kind, KindOfFile(source, file));
        if (kind != SourceKind::kIndexed) continue;
        const std::string prefix = IndexedPrefix(file);
        TRAINCTL_RETURN_IF_ERROR(RefuseLfsPointerFile(prefix + ".json"));
        prefixes.insert(prefix);
      }
    }
  }
  return prefixes;
}

}  // namespace

absl::Status CheckPreparedTokenizer(const recipe::DataConfig& data) {
  if (data.tokenizer == "byte") return absl::OkStatus();
  TRAINCTL_ASSIGN_OR_RETURN(const std::set<std::string> prefixes, PrefixesOf(data));
  Origin own = {data.tokenizer, "", 0};
  for (const std::string& prefix : prefixes) {
    const std::optional<Origin> origin = OriginOf(prefix);
    if (!origin.has_value()) continue;
    if (own.digest.empty()) {
      TRAINCTL_ASSIGN_OR_RETURN(const std::string file, tokenizer::Tokenizer::FindFile(data.tokenizer));
      TRAINCTL_ASSIGN_OR_RETURN(const FileFingerprint fingerprint, FingerprintFile(file));
      own.digest = absl::StrFormat("%016x", fingerprint.xxh3);
    }
    if (origin->digest == own.digest) continue;
    return UsageError(absl::StrCat("data.tokenizer = ", Text(own), ", but according to ", prefix, ".json, ",
                                   prefix, ".bin was prepared with ", Text(*origin),
                                   "; use that tokenizer, or prepare the data again"));
  }
  return absl::OkStatus();
}

absl::Status CheckPreparedVocab(const recipe::DataConfig& data, int64_t vocab) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::set<std::string> prefixes, PrefixesOf(data));
  for (const std::string& prefix : prefixes) {
    const std::optional<Origin> origin = OriginOf(prefix);
    if (!origin.has_value() || origin->vocab <= vocab) continue;
    return UsageError(absl::StrCat("according to ", prefix, ".json, ", prefix, ".bin was prepared with ",
                                   Text(*origin), ", which has IDs up to ", origin->vocab - 1,
                                   ", but model.vocab is ", vocab, "; set model.vocab = ", origin->vocab,
                                   " or more"));
  }
  return absl::OkStatus();
}

namespace {

// The last token of all sampled documents, or -1 if they differ or cannot be read.
int32_t CommonLastToken(const IndexedDataset& dataset) {
  constexpr int64_t kMostSamples = 64;
  const int64_t num_documents = dataset.index().num_documents();
  const int64_t num_samples = std::min(num_documents, kMostSamples);
  int32_t common = -1;
  for (int64_t i = 0; i < num_samples; ++i) {
    const int64_t document = num_documents / num_samples * i;
    const int64_t tokens = dataset.index().DocumentTokens(document);
    if (tokens == 0) continue;
    int32_t last = -1;
    if (!dataset.CheckUnchanged().ok() || !dataset.Read(document, tokens - 1, 1, INT32_MAX, &last).ok())
      return -1;
    if (common >= 0 && last != common) return -1;
    common = last;
  }
  return common;
}

}  // namespace

std::vector<PreparedEnd> FindPreparedEnds(const recipe::DataConfig& data,
                                          const tokenizer::Tokenizer& tokenizer) {
  const absl::StatusOr<std::set<std::string>> prefixes = PrefixesOf(data);
  if (!prefixes.ok()) return {};
  std::vector<PreparedEnd> ends;
  const std::vector<int32_t>& special = tokenizer.special_ids();
  for (const std::string& prefix : *prefixes) {
    const absl::StatusOr<IndexedDataset> dataset = IndexedDataset::Open(prefix);
    if (!dataset.ok()) continue;
    const int32_t end = CommonLastToken(*dataset);
    if (std::find(special.begin(), special.end(), end) == special.end()) continue;
    ends.push_back({.file = prefix + ".bin", .id = end});
  }
  return ends;
}

}  // namespace trainctl::data
