#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "base/files.h"
#include "base/folder_entries.h"
#include "base/status.h"
#include "tokenizer/config_beside.h"
#include "tokenizer/other_files.h"
#include "tokenizer/sentencepiece.h"
#include "tokenizer/tokenizer_json.h"

namespace trainctl::tokenizer {
namespace {

constexpr int64_t kMaxFileBytes = int64_t{1} << 28;

// Ends of a text in the files of well known models; the first that is a special token of the file counts.
constexpr const char* kEnds[] = {
    "</s>",  "<|end_of_text|>", "<|endoftext|>", "<eos>", "<|eos|>", "<｜end▁of▁sentence｜>",
    "[EOS]", "<|im_end|>",      "<EOT>",
};

}  // namespace

absl::StatusOr<std::string> Tokenizer::FindFile(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    for (const char* name : {"/tokenizer.json", "/tokenizer.model"}) {
      if (std::filesystem::is_regular_file(path + name, ignored)) return path + name;
    }
    return UsageError(absl::StrCat(path, ": the folder contains neither tokenizer.json nor tokenizer.model",
                                   DescribeOthersIn(FolderEntries(path), path)));
  }
  if (!std::filesystem::is_regular_file(path, ignored)) {
    return UsageError(absl::StrCat("no such tokenizer file or folder: ", path));
  }
  return path;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Load(const std::string& given) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::string path, FindFile(given));
  TRAINCTL_ASSIGN_OR_RETURN(const int64_t file_bytes, FileBytes(path));
  if (file_bytes > kMaxFileBytes) {
    return BadDataError(absl::StrCat(path, ": ", file_bytes, " bytes exceed the limit for a tokenizer (",
                                     kMaxFileBytes, ")"));
  }
  TRAINCTL_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path, kMaxFileBytes));
  TRAINCTL_ASSIGN_OR_RETURN(auto tokenizer, Parse(bytes, path));
  TRAINCTL_RETURN_IF_ERROR(RefuseLfsPointersBeside(path));
  tokenizer->end_of_document_id_ = EndOfDocumentBeside(*tokenizer, path);
  return tokenizer;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Parse(absl::string_view bytes, absl::string_view what) {
  const absl::string_view start = absl::StripLeadingAsciiWhitespace(bytes.substr(0, 64));
  // No .model begins with a brace: its first byte says "field 1".
  if (absl::StartsWith(start, "{") || absl::StartsWith(start, "[")) return ParseTokenizerJson(bytes, what);
  const std::string other = DescribeOtherBytes(bytes, what);
  if (!other.empty()) return BadDataError(absl::StrCat(what, ": ", other));
  return ParseSentencePiece(bytes, what);
}

absl::Status Tokenizer::EncodeDocument(absl::string_view text, std::vector<int32_t>* ids) const {
  ids->insert(ids->end(), prefix_ids_.begin(), prefix_ids_.end());
  TRAINCTL_RETURN_IF_ERROR(Encode(text, ids));
  ids->insert(ids->end(), suffix_ids_.begin(), suffix_ids_.end());
  return absl::OkStatus();
}

absl::Status Tokenizer::SetEndOfDocument(absl::string_view token) {
  const int32_t id = token == "none" ? -1 : IdOf(token);
  if (id < 0 && token != "none") {
    return UsageError(absl::StrCat("the tokenizer has no token '", token, "' to end documents with"));
  }
  end_of_document_id_ = id;
  return absl::OkStatus();
}

absl::string_view Tokenizer::TokenOf(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  return tokens_[static_cast<size_t>(id)];
}

void Tokenizer::FindEndOfDocument() {
  for (const char* end : kEnds) {
    for (const int32_t id : special_ids_) {
      if (TokenOf(id) != end) continue;
      end_of_document_id_ = id;
      return;
    }
  }
}

}  // namespace trainctl::tokenizer
