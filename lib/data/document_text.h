// Tokenizes texts as whole documents and appends their end-of-document tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tokenizer/tokenizer.h"

namespace trainctl::data {

// Returns BadDataError, with advice, if a text is too long to be tokenized as a whole.
absl::Status CheckTextBytes(const std::string& path, size_t text_bytes);

// Reads a text file, which may be compressed (unpacked_file.h).
absl::StatusOr<std::string> ReadText(const std::string& path);

// Ends the document that starts at index `begin` of `tokens` by appending `end_id`, unless the document
// already ends with that token or is empty. -1 means that there is no such token.
void EndDocument(int32_t end_id, size_t begin, std::vector<int32_t>* tokens);

struct AppendedDocument {
  // Number of tokens that belong to the prompt: the prefix, and any further tokens shared with the encoding
  // of the prompt by itself. A token that spans the boundary therefore belongs to the text. 0 if the prompt
  // is empty.
  int64_t prompt_tokens = 0;
  // Whether the text itself begins with the tokenizer's prefix.
  bool has_own_start = false;
  // Whether the prefix's last token, if it is special, appears again among the next tokens, for example
  // because the text begins with it twice or after a space.
  bool repeats_start = false;
  // Whether the tokens of the prompt by itself differ from those at the beginning of the document. For
  // example, a space at the end of the prompt may form a token with the first word of the text.
  bool changes_prompt = false;
};

// Appends the tokens of one document and ends it. The document consists of the tokenizer's prefix, the prompt
// and text encoded together, and the tokenizer's suffix. A prefix or suffix that the text already contains,
// as rendered chats do, is not added again.
absl::StatusOr<AppendedDocument> AppendDocument(const tokenizer::Tokenizer& tokenizer, int32_t end_id,
                                                const std::string& prompt, const std::string& text,
                                                std::vector<int32_t>* tokens);

}  // namespace trainctl::data
