#include "data/source_kind.h"

#include <array>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "data/unpacked_file.h"
#include "recipe/recipe.h"

namespace trainctl::data {
namespace {

// Indexed by SourceKind.
constexpr std::array<std::pair<SourceKind, absl::string_view>, 4> kNames = {
    {{SourceKind::kIndexed, "indexed"},
     {SourceKind::kJsonl, "jsonl"},
     {SourceKind::kParquet, "parquet"},
     {SourceKind::kText, "text"}}};

constexpr const char* kNotText[] = {".bz2", ".xz",    ".zip",  ".7z",  ".tar", ".tgz",
                                    ".npy", ".arrow", ".json", ".csv", ".tsv", ".safetensors"};

// False if the file cannot be read; its reader then reports the error.
bool BeginsAsParquet(const std::string& file) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) return false;
  std::array<char, kParquetMagic.size()> begin = {};
  std::ifstream(file, std::ios::binary).read(begin.data(), begin.size());
  return absl::string_view(begin.data(), begin.size()) == kParquetMagic;
}

}  // namespace

absl::string_view KindName(SourceKind kind) { return kNames[static_cast<size_t>(kind)].second; }

absl::StatusOr<SourceKind> KindOfFile(const recipe::DataSource& source, const std::string& file) {
  for (const auto& [kind, name] : kNames) {
    if (source.kind == name) return kind;
  }
  if (source.kind != "auto") {
    return UsageError(
        absl::StrCat("data source kind '", source.kind, "' must be auto, indexed, jsonl, parquet or text"));
  }
  // The name inside decides; the reader detects compression by the bytes.
  const std::string name = absl::AsciiStrToLower(WithoutCompressionSuffix(file));
  if (absl::EndsWith(name, ".bin") || absl::EndsWith(name, ".idx")) return SourceKind::kIndexed;
  if (absl::EndsWith(name, ".jsonl") || absl::EndsWith(name, ".ndjson")) return SourceKind::kJsonl;
  if (absl::EndsWith(name, ".parquet")) return SourceKind::kParquet;
  for (const char* suffix : kNotText) {
    if (absl::EndsWith(name, suffix)) {
      return UsageError(absl::StrCat(
          file, ": ", suffix,
          " files are not read as text by default; unpack or convert them, or set kind = \"jsonl\" if they "
          "contain one JSON object per line, or kind = \"text\" if they contain text"));
    }
  }
  const bool has_suffix = std::filesystem::path(file).has_extension();
  return !has_suffix && BeginsAsParquet(file) ? SourceKind::kParquet : SourceKind::kText;
}

}  // namespace trainctl::data
