#include "data/document_text.h"

#include "base/status.h"
#include "data/unpacked_file.h"

namespace trainctl::data {

absl::Status CheckTextBytes(const std::string& path, size_t text_bytes) {
  if (text_bytes <= tokenizer::kMaxTextBytes) return absl::OkStatus();
  return BadDataError(absl::StrCat(
      path, ": a text of more than ", tokenizer::kMaxTextBytes,
      " bytes cannot be tokenized as one document; cut it into several files, or make it JSONL with a "
      "document per line"));
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

absl::StatusOr<int64_t> AppendDocument(const tokenizer::Tokenizer& tokenizer, int32_t end_id,
                                       const std::string& prompt, const std::string& text,
                                       std::vector<int32_t>* tokens) {
  const size_t begin = tokens->size();
  size_t num_prompt = 0;
  if (prompt.empty()) {
    TRAINCTL_RETURN_IF_ERROR(tokenizer.EncodeDocument(text, tokens));
  } else {
    TRAINCTL_RETURN_IF_ERROR(tokenizer.EncodeDocument(prompt + text, tokens));
    std::vector<int32_t> alone(tokenizer.prefix_ids());
    TRAINCTL_RETURN_IF_ERROR(tokenizer.Encode(prompt, &alone));
    while (num_prompt < alone.size() && begin + num_prompt < tokens->size() &&
           (*tokens)[begin + num_prompt] == alone[num_prompt]) {
      ++num_prompt;
    }
  }
  EndDocument(end_id, begin, tokens);
  return static_cast<int64_t>(num_prompt);
}

}  // namespace trainctl::data
