// Converts text to token ids and back, as specified by a model's tokenizer file. Supports Hugging Face's
// tokenizer.json (byte-level or sentencepiece-style BPE) and sentencepiece's .model (BPE and Unigram).
//
// Chat templates, text pairs, offsets, truncation and padding are not supported; a file that configures
// truncation or padding is accepted, but they are not applied. A file of another version, or with an unknown
// kind of component, option or pattern, is rejected with an error that names the field. Unknown fields of a
// component are ignored, as in the reference implementation. docs/guide/tokenizers.md lists everything that
// the reference implementation reads and this one does not.
//
// Thread-safe: any number of threads may call const functions on the same object.
//
//   TRAINCTL_ASSIGN_OR_RETURN(auto tokenizer, Tokenizer::Load("llama/tokenizer.json"));
//   std::vector<int32_t> ids;
//   TRAINCTL_RETURN_IF_ERROR(tokenizer->EncodeDocument("Hello world", &ids));
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace trainctl::tokenizer {

// The maximum size of a text passed to Encode.
inline constexpr size_t kMaxTextBytes = size_t{1} << 30;

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Loads a tokenizer.json or a .model, which it tells apart by their content. If `path` is a folder, loads
  // the tokenizer.json or tokenizer.model in it. Returns UsageError if there is no such file, and a
  // BadDataError that names the file and field if it is invalid.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Load(const std::string& path);
  // Returns the file that Load would read: `path`, or the tokenizer file in that folder. Returns UsageError
  // if there is none.
  static absl::StatusOr<std::string> FindFile(const std::string& path);
  // Like Load, but from memory, and without reading the files next to it. `what` names the file in errors.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Parse(absl::string_view bytes, absl::string_view what);

  // Appends the ids of `text`, without the prefix and suffix of the file's post-processor. Added and special
  // tokens that are spelled out in the text become their ids. Each maximal ill-formed part of the UTF-8 is
  // read as one U+FFFD, as with Python's errors="replace". Returns BadDataError if the text is too long, or
  // if matching one of the file's patterns takes too many steps. With the patterns of real models, the time
  // is linear in the length of the text. A malicious pattern can take quadratic time, so use untrusted
  // tokenizer files only on short texts.
  virtual absl::Status Encode(absl::string_view text, std::vector<int32_t>* ids) const = 0;

  // Appends prefix_ids(), the ids of `text`, and suffix_ids(). This equals the result of `encode` in the PyPI
  // packages without truncation and padding.
  absl::Status EncodeDocument(absl::string_view text, std::vector<int32_t>* ids) const;

  // Returns the text of these ids, with U+FFFD for bytes that do not form valid UTF-8. If `skip_special` is
  // true, omits special tokens (beginning of text, end of text, ...). Returns UsageError for an id that is
  // not in the vocabulary.
  virtual absl::StatusOr<std::string> Decode(absl::Span<const int32_t> ids, bool skip_special) const = 0;

  // The largest id plus 1, which is the minimum for model.vocab. Some smaller ids may be unused.
  int64_t vocab_size() const { return static_cast<int64_t>(tokens_.size()); }
  // Returns the token as spelled in the file, or an empty string if the id is unused.
  absl::string_view TokenOf(int32_t id) const;
  // Returns the id of the token with this spelling, or -1 if there is none.
  virtual int32_t IdOf(absl::string_view token) const = 0;

  // The tokens that the post-processor puts before and after each text, such as "<s>".
  const std::vector<int32_t>& prefix_ids() const { return prefix_ids_; }
  const std::vector<int32_t>& suffix_ids() const { return suffix_ids_; }

  // The token that ends a document, or -1 if there is none. It is taken from the files next to the tokenizer
  // (config_beside.h), else from the .model, else it is the first well-known special token in the vocabulary
  // ("</s>", "<|endoftext|>", ...).
  int32_t end_of_document_id() const { return end_of_document_id_; }
  // Changes end_of_document_id() to another token, spelled as in the file, or to "none". Returns UsageError
  // if there is no such token.
  absl::Status SetEndOfDocument(absl::string_view token);

  const std::vector<int32_t>& special_ids() const { return special_ids_; }
  // A description of the tokenizer, such as "byte-level BPE" or "BPE with byte fallback".
  const std::string& kind() const { return kind_; }

 protected:
  Tokenizer() = default;
  // Finds end_of_document_id_ among the special tokens.
  void FindEndOfDocument();

  std::vector<std::string> tokens_;  // tokens by id
  std::vector<int32_t> prefix_ids_;
  std::vector<int32_t> suffix_ids_;
  std::vector<int32_t> special_ids_;
  int32_t end_of_document_id_ = -1;
  std::string kind_;
};

}  // namespace trainctl::tokenizer
