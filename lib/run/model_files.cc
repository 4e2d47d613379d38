#include "run/model_files.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/files.h"
#include "base/lfs_pointer.h"
#include "base/status.h"

namespace trainctl::run {
namespace {

constexpr absl::string_view kConfigs[] = {"config.json", "generation_config.json"};
// What transformers' tokenizers write: tokenization_utils_base.py and the vocab_files_names of their classes.
constexpr absl::string_view kTokenizerFiles[] = {"tokenizer.json",
                                                 "tokenizer.model",
                                                 "tokenizer_config.json",
                                                 "special_tokens_map.json",
                                                 "added_tokens.json",
                                                 "vocab.json",
                                                 "merges.txt",
                                                 "vocab.txt",
                                                 "sentencepiece.bpe.model",
                                                 "spiece.model",
                                                 "chat_template.jinja",
                                                 "chat_template.json"};

bool Has(absl::Span<const absl::string_view> names, absl::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

absl::Status Copy(const std::string& from, const std::string& to) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(from));
  TRAINCTL_RETURN_IF_ERROR(RefuseLfsPointer(bytes, from));
  return WriteFileAtomic(to, bytes);
}

absl::Status CopyThoseThatAre(absl::Span<const absl::string_view> names, const std::string& from,
                              const std::string& to) {
  for (const absl::string_view name : names) {
    const std::string path = absl::StrCat(from, "/", name);
    if (PathExists(path)) TRAINCTL_RETURN_IF_ERROR(Copy(path, absl::StrCat(to, "/", name)));
  }
  return absl::OkStatus();
}

// A tokenizer file that lies by itself: JSON, or sentencepiece's, which never begins with a brace.
absl::Status CopyLoneTokenizer(const std::string& path, const std::string& to) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
  TRAINCTL_RETURN_IF_ERROR(RefuseLfsPointer(bytes, path));
  return WriteFileAtomic(
      absl::StrCat(to, absl::StartsWith(bytes, "{") ? "/tokenizer.json" : "/tokenizer.model"), bytes);
}

}  // namespace

absl::Status KeepModelFiles(const ModelFileSources& sources, const std::string& to) {
  if (sources.folder.empty() && sources.tokenizer.empty()) return absl::OkStatus();
  TRAINCTL_RETURN_IF_ERROR(MakeDirs(to));
  if (!sources.folder.empty()) TRAINCTL_RETURN_IF_ERROR(CopyThoseThatAre(kConfigs, sources.folder, to));
  const std::filesystem::path tokenizer = sources.tokenizer;
  if (tokenizer.empty()) return CopyThoseThatAre(kTokenizerFiles, sources.folder, to);
  if (Has(kTokenizerFiles, tokenizer.filename().string())) {
    return CopyThoseThatAre(kTokenizerFiles, tokenizer.parent_path().string(), to);
  }
  return CopyLoneTokenizer(tokenizer.string(), to);
}

bool IsModelFile(absl::string_view name) { return Has(kConfigs, name) || Has(kTokenizerFiles, name); }

}  // namespace trainctl::run
