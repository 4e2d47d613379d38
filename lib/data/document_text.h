// Texts that become documents by a tokenizer: read as a whole, and ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tokenizer/tokenizer.h"

namespace trainctl::data {

// BadDataError, with what to do, for a text longer than can be tokenized as one.
absl::Status CheckTextBytes(const std::string& path, size_t text_bytes);

// A text file, plain or packed (unpacked_file.h), as one text.
absl::StatusOr<std::string> ReadText(const std::string& path);

// Ends the document whose tokens are `tokens` from `begin` on with `end_id` (-1: with nothing), unless it
// ends so already. A document without tokens stays without.
void EndDocument(int32_t end_id, size_t begin, std::vector<int32_t>* tokens);

struct AppendedDocument {
  // Tokens of the document that belong to the prompt: the prefix, and those with which the encoding of the
  // prompt by itself also begins. A token that spans the border therefore belongs to the text. 0 if the
  // prompt is empty.
  int64_t prompt_tokens = 0;
  // The text itself begins with what the tokenizer puts before a text.
  bool has_own_start = false;
};

// The tokens of one document, appended and ended: what the tokenizer puts before and behind a text, and
// between them prompt and text as one text. A text that begins or ends with these tokens by itself, as
// rendered chats do, has them once.
absl::StatusOr<AppendedDocument> AppendDocument(const tokenizer::Tokenizer& tokenizer, int32_t end_id,
                                                const std::string& prompt, const std::string& text,
                                                std::vector<int32_t>* tokens);

}  // namespace trainctl::data
