#include "data/document_text.h"

#include <algorithm>
#include <cstddef>

#include "absl/types/span.h"
#include "base/status.h"
#include "data/unpacked_file.h"

namespace trainctl::data {

absl::Status CheckTextBytes(const std::string& path, size_t text_bytes) {
  if (text_bytes <= tokenizer::kMaxTextBytes) return absl::OkStatus();
  return BadDataError(absl::StrCat(path, ": a text of more than ", tokenizer::kMaxTextBytes,
                                   " bytes cannot be tokenized as one document; split it into several files, "
                                   "or convert it to JSONL with one document per line"));
}

absl::StatusOr<std::string> ReadText(const std::string& path) {
  TRAINCTL_ASSIGN_OR_RETURN(UnpackedFile file, UnpackedFile::Open(path));
  std::string text;
  while (true) {
    TRAINCTL_ASSIGN_OR_RETURN(const absl::Span<const uint8_t> piece, file.Next());
    if (piece.empty()) return text;
    TRAINCTL_RETURN_IF_ERROR(CheckTextBytes(path, text.size() + piece.size()));
    text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  }
}

void EndDocument(int32_t end_id, size_t begin, std::vector<int32_t>* tokens) {
  const bool is_open = tokens->size() > begin && tokens->back() != end_id;
  if (end_id >= 0 && is_open) tokens->push_back(end_id);
}

namespace {

// Appends the prefix, unless the text begins with it, and the text. Whether it does.
absl::StatusOr<bool> AppendStarted(const tokenizer::Tokenizer& tokenizer, const std::string& text,
                                   std::vector<int32_t>* tokens) {
  const std::vector<int32_t>& prefix = tokenizer.prefix_ids();
  const auto size = static_cast<std::ptrdiff_t>(prefix.size());
  const auto begin = static_cast<std::ptrdiff_t>(tokens->size());
  tokens->insert(tokens->end(), prefix.begin(), prefix.end());
  TRAINCTL_RETURN_IF_ERROR(tokenizer.Encode(text, tokens));
  const auto start = tokens->begin() + begin;
  const bool is_there =
      size > 0 && tokens->end() - start >= 2 * size && std::equal(prefix.begin(), prefix.end(), start + size);
  if (is_there) tokens->erase(start, start + size);
  return is_there;
}

bool RepeatsStart(const tokenizer::Tokenizer& tokenizer, absl::Span<const int32_t> document) {
  constexpr size_t kNext = 2;
  const std::vector<int32_t>& prefix = tokenizer.prefix_ids();
  if (prefix.empty() || document.size() <= prefix.size()) return false;
  const auto contains = [](absl::Span<const int32_t> ids, int32_t id) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  return contains(tokenizer.special_ids(), prefix.back()) &&
         contains(document.subspan(prefix.size(), kNext), prefix.back());
}

// Appends the suffix, unless what has been appended from `begin` on ends with it.
void AppendSuffix(const tokenizer::Tokenizer& tokenizer, size_t begin, std::vector<int32_t>* tokens) {
  const std::vector<int32_t>& suffix = tokenizer.suffix_ids();
  const bool is_there =
      tokens->size() - begin >= suffix.size() && std::equal(suffix.rbegin(), suffix.rend(), tokens->rbegin());
  if (!is_there) tokens->insert(tokens->end(), suffix.begin(), suffix.end());
}

}  // namespace

absl::StatusOr<AppendedDocument> AppendDocument(const tokenizer::Tokenizer& tokenizer, int32_t end_id,
                                                const std::string& prompt, const std::string& text,
                                                std::vector<int32_t>* tokens) {
  const size_t begin = tokens->size();
  AppendedDocument document;
  TRAINCTL_ASSIGN_OR_RETURN(document.has_own_start, AppendStarted(tokenizer, prompt + text, tokens));
  document.repeats_start = RepeatsStart(tokenizer, absl::MakeConstSpan(*tokens).subspan(begin));
  AppendSuffix(tokenizer, begin, tokens);
  if (!prompt.empty()) {
    std::vector<int32_t> alone;
    TRAINCTL_RETURN_IF_ERROR(AppendStarted(tokenizer, prompt, &alone).status());
    size_t num_prompt = 0;
    while (num_prompt < alone.size() && begin + num_prompt < tokens->size() &&
           (*tokens)[begin + num_prompt] == alone[num_prompt]) {
      ++num_prompt;
    }
    document.prompt_tokens = static_cast<int64_t>(num_prompt);
    document.changes_prompt = num_prompt < alone.size() && !text.empty();
  }
  EndDocument(end_id, begin, tokens);
  return document;
}

}  // namespace trainctl::data
