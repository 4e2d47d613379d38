// Text into token ids and back, as the tokenizer file of a model says: Hugging Face's tokenizer.json (BPE,
// byte level or in the style of sentencepiece) and sentencepiece's .model (BPE and Unigram).
//
// Not here: chat templates, pairs of texts, offsets, truncation and padding (a file that asks for those two
// is read, and they are not applied). Another version of the file, kinds of parts, options and patterns that
// are not known here are refused by the field's name; fields of a part that no known kind of it has are
// passed over, as the reference implementation does it. docs/guide/tokenizers.md lists what that one reads
// and this does not.
//
// Thread safe: any number of threads may call the const functions of one object.
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

// A longer text is not taken as one.
inline constexpr size_t kMaxTextBytes = size_t{1} << 30;

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Reads a tokenizer.json or a .model, whichever the bytes are; of a folder, its tokenizer.json or
  // tokenizer.model. BadDataError names the file and the field; UsageError: no such file.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Load(const std::string& path);
  // The file that Load would read: `path`, or the one in that folder. UsageError: there is none.
  static absl::StatusOr<std::string> FindFile(const std::string& path);
  // As Load, but from memory; `what` names the file in errors. The files next to it are not read.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Parse(absl::string_view bytes, absl::string_view what);

  // Appends the ids of `text`, without what the file's post-processor puts around a text. Added and special
  // tokens whose words stand in the text become their ids. Bytes that are not UTF-8 are read as U+FFFD, one
  // for each longest ill-formed piece (as Python's errors="replace"). BadDataError: a text
  // that is too long, or on which a search of a pattern of the file needs more steps than are allowed. Time
  // grows with the length of the text for the patterns of models; a pattern can be written that needs its
  // square, so read files from strangers on short texts only.
  virtual absl::Status Encode(absl::string_view text, std::vector<int32_t>* ids) const = 0;

  // Appends prefix_ids(), the ids of `text`, suffix_ids(): what `encode` of the PyPI packages returns
  // without truncation and padding.
  absl::Status EncodeDocument(absl::string_view text, std::vector<int32_t>* ids) const;

  // The text of these ids; pieces that are not UTF-8 together are shown as U+FFFD. UsageError: an id that is
  // not in the vocabulary. `skip_special` leaves special tokens (begin and end of text, ...) out.
  virtual absl::StatusOr<std::string> Decode(absl::Span<const int32_t> ids, bool skip_special) const = 0;

  // The largest id and 1: the least that model.vocab may be. There may be ids below it without a token.
  int64_t vocab_size() const { return static_cast<int64_t>(tokens_.size()); }
  // The token as the file spells it; empty where the id has none.
  absl::string_view TokenOf(int32_t id) const;
  // -1 where no token is spelled so.
  virtual int32_t IdOf(absl::string_view token) const = 0;

  // What the post-processor puts before and behind each text ("<s>" and the like).
  const std::vector<int32_t>& prefix_ids() const { return prefix_ids_; }
  const std::vector<int32_t>& suffix_ids() const { return suffix_ids_; }

  // The token that ends a document: the one that the files next to the tokenizer name (config_beside.h), else
  // the one that a .model names, else the first known special token ("</s>",
  // "<|endoftext|>", ...). -1: none.
  int32_t end_of_document_id() const { return end_of_document_id_; }
  // Sets another token, as the file spells it, or "none". UsageError if there is no such token.
  absl::Status SetEndOfDocument(absl::string_view token);

  const std::vector<int32_t>& special_ids() const { return special_ids_; }
  // "byte-level BPE", "BPE with byte fallback", ...
  const std::string& kind() const { return kind_; }

 protected:
  Tokenizer() = default;
  // Finds end_of_document_id_ among the special tokens.
  void FindEndOfDocument();

  std::vector<std::string> tokens_;  // by id
  std::vector<int32_t> prefix_ids_;
  std::vector<int32_t> suffix_ids_;
  std::vector<int32_t> special_ids_;
  int32_t end_of_document_id_ = -1;
  std::string kind_;
};

}  // namespace trainctl::tokenizer
