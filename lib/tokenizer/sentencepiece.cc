#include "tokenizer/sentencepiece.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "tokenizer/chars_map.h"
#include "tokenizer/piece_models.h"
#include "tokenizer/scratch_pool.h"
#include "tokenizer/sentencepiece_file.h"
#include "tokenizer/space_marks.h"
#include "tokenizer/utf8.h"

namespace trainctl::tokenizer {
namespace {

class SentencePieceTokenizer : public Tokenizer {
 public:
  absl::Status Init(SentencePieceFile file, absl::string_view what);
  absl::Status Encode(absl::string_view text, std::vector<int32_t>* ids) const override;
  absl::StatusOr<std::string> Decode(absl::Span<const int32_t> ids, bool skip_special) const override;
  int32_t IdOf(absl::string_view token) const override {
    const auto found = all_ids_.find(token);
    return found == all_ids_.end() ? -1 : found->second;
  }

 private:
  absl::Status AddPiece(int32_t id, absl::string_view what);
  std::string Normalized(absl::string_view text) const;
  absl::string_view NextNormalized(absl::string_view text, size_t* consumed) const;
  int ByteOf(int32_t id) const;

  SentencePieceFile file_;  // without its pieces
  PieceTable table_;
  absl::flat_hash_map<std::string, int32_t> all_ids_;
  CharsMap chars_map_;
  std::unique_ptr<Model> model_;
  mutable ScratchPool scratches_;
};

absl::Status SentencePieceTokenizer::Init(SentencePieceFile file, absl::string_view what) {
  TRAINCTL_ASSIGN_OR_RETURN(chars_map_, CharsMap::Parse(file.charsmap, what));
  table_.pieces = std::move(file.pieces);
  table_.byte_fallback = file.byte_fallback;
  table_.byte_ids.fill(-1);
  file_ = std::move(file);
  for (size_t i = 0; i < table_.pieces.size(); ++i) {
    tokens_.push_back(table_.pieces[i].text);
    TRAINCTL_RETURN_IF_ERROR(AddPiece(static_cast<int32_t>(i), what));
  }
  if (table_.unk_id < 0) return BadDataError(absl::StrCat(what, ": no piece has type UNKNOWN"));
  for (const int32_t id : table_.byte_ids) {
    if (file_.byte_fallback && id < 0) {
      return BadDataError(absl::StrCat(what, ": byte_fallback is set, but not every byte has a piece"));
    }
  }
  model_ = file_.is_bpe ? MakePieceBpe(table_) : MakeUnigram(table_);
  kind_ = absl::StrCat("sentencepiece ", file_.is_bpe ? "BPE" : "Unigram",
                       file_.byte_fallback ? " with byte fallback" : "");
  const bool has_eos = file_.eos_id >= 0 && file_.eos_id < vocab_size();
  if (has_eos && table_.at(file_.eos_id).type == PieceType::kControl) end_of_document_id_ = file_.eos_id;
  return absl::OkStatus();
}

absl::Status SentencePieceTokenizer::AddPiece(int32_t id, absl::string_view what) {
  const SentencePieceFile::Piece& piece = table_.at(id);
  const auto bad = [&](absl::string_view why) {
    return BadDataError(absl::StrCat(what, ": pieces[", id, "] ('", piece.text, "') ", why));
  };
  if (!all_ids_.try_emplace(piece.text, id).second) return bad("occurs twice");
  switch (piece.type) {
    case PieceType::kUserDefined:
      table_.user_defined.Add(piece.text, id);
      [[fallthrough]];
    case PieceType::kNormal:
    case PieceType::kUnused:
      table_.ids.emplace(piece.text, id);
      return absl::OkStatus();
    case PieceType::kUnknown:
      if (table_.unk_id >= 0) return bad("is a second piece of type UNKNOWN");
      table_.unk_id = id;
      break;
    case PieceType::kByte: {
      const int byte = ByteOf(id);
      if (byte < 0 || !file_.byte_fallback) return bad("has type BYTE but is not a byte");
      table_.byte_ids[static_cast<size_t>(byte)] = id;
      return absl::OkStatus();
    }
    case PieceType::kControl:
      break;
  }
  special_ids_.push_back(id);
  return absl::OkStatus();
}

int SentencePieceTokenizer::ByteOf(int32_t id) const {
  const std::string& text = table_.at(id).text;
  if (table_.at(id).type != PieceType::kByte || text.size() != 6) return -1;
  constexpr absl::string_view kDigits = "0123456789ABCDEF";
  const size_t high = kDigits.find(text[3]);
  const size_t low = kDigits.find(text[4]);
  if (!absl::StartsWith(text, "<0x") || text[5] != '>' || high == absl::string_view::npos ||
      low == absl::string_view::npos) {
    return -1;
  }
  return static_cast<int>(high * 16 + low);
}

// What stands for the front of `text`: a user-defined symbol as it is, else by the longest rule of the table.
absl::string_view SentencePieceTokenizer::NextNormalized(absl::string_view text, size_t* consumed) const {
  *consumed = table_.UserDefinedBytes(text);
  if (*consumed > 0) return text.substr(0, *consumed);
  absl::string_view replacement;
  *consumed = chars_map_.Longest(text, &replacement);
  if (*consumed > 0) return replacement;
  *consumed = CharBytes(text.front());
  return text.substr(0, *consumed);
}

std::string SentencePieceTokenizer::Normalized(absl::string_view text) const {
  std::string out;
  size_t consumed = 0;
  const bool trims = file_.remove_extra_whitespaces;
  while (trims && !text.empty() && NextNormalized(text, &consumed) == " ") text.remove_prefix(consumed);
  if (text.empty()) return out;
  const absl::string_view space = file_.escape_whitespaces ? kSpaceMark : " ";
  const auto add_space = [&] { out.append(space.data(), space.size()); };
  out.reserve(text.size() + text.size() / 2);
  if (file_.add_dummy_prefix && !file_.treat_whitespace_as_suffix) add_space();
  bool behind_space = trims;
  while (!text.empty()) {
    absl::string_view next = NextNormalized(text, &consumed);
    text.remove_prefix(consumed);
    while (behind_space && absl::ConsumePrefix(&next, " ")) {
    }
    for (const char c : next) {
      if (c == ' ') {
        add_space();
      } else {
        out.push_back(c);
      }
    }
    if (!next.empty()) behind_space = absl::EndsWith(next, " ");
    behind_space = behind_space && trims;
  }
  while (trims && absl::EndsWith(out, space)) out.resize(out.size() - space.size());
  if (file_.add_dummy_prefix && file_.treat_whitespace_as_suffix) add_space();
  return out;
}

absl::Status SentencePieceTokenizer::Encode(absl::string_view text, std::vector<int32_t>* ids) const {
  std::string repaired;
  TRAINCTL_ASSIGN_OR_RETURN(text, CheckedText(text, kMaxTextBytes / 4, &repaired));
  const std::string normalized = Normalized(text);
  if (normalized.empty()) return absl::OkStatus();
  const size_t before = ids->size();
  const ScratchPool::Lease scratch(scratches_);
  model_->EncodeWord(normalized, *scratch, ids);
  if (table_.byte_fallback) return absl::OkStatus();
  // A row of unknown characters is one token.
  const auto begin = ids->begin() + static_cast<ptrdiff_t>(before);
  const auto is_joined = [this](int32_t a, int32_t b) { return a == table_.unk_id && b == table_.unk_id; };
  ids->erase(std::unique(begin, ids->end(), is_joined), ids->end());
  return absl::OkStatus();
}

absl::StatusOr<std::string> SentencePieceTokenizer::Decode(absl::Span<const int32_t> ids, bool) const {
  std::string text;
  std::string bytes;
  const auto flush = [&] {
    absl::string_view left = bytes;
    while (!left.empty()) {
      const size_t length = CharBytes(left.front());
      if (length <= left.size() && IsUtf8(left.substr(0, length))) {
        text.append(left.data(), length);
        left.remove_prefix(length);
      } else {
        text += "\xEF\xBF\xBD";
        left.remove_prefix(1);
      }
    }
    bytes.clear();
  };
  bool may_drop_space = true;  // the one that encoding put before the text
  bool has_dropped = false;
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_size()) {
      return UsageError(
          absl::StrCat("ID ", id, " is not in the tokenizer, whose IDs are 0 to ", vocab_size() - 1));
    }
    const int byte = ByteOf(id);
    if (byte >= 0) {
      bytes.push_back(static_cast<char>(byte));
      continue;
    }
    flush();
    if (has_dropped || !text.empty()) may_drop_space = false;
    has_dropped = false;
    if (table_.at(id).type == PieceType::kControl) continue;
    if (id == table_.unk_id) {
      text += file_.unk_surface;
      continue;
    }
    absl::string_view piece = table_.at(id).text;
    if (may_drop_space && (file_.add_dummy_prefix || file_.remove_extra_whitespaces)) {
      has_dropped = absl::ConsumePrefix(&piece, kSpaceMark) && !file_.remove_extra_whitespaces;
    }
    text += absl::StrReplaceAll(piece, {{kSpaceMark, " "}});
  }
  flush();
  return text;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> ParseSentencePiece(absl::string_view bytes,
                                                              absl::string_view what) {
  TRAINCTL_ASSIGN_OR_RETURN(SentencePieceFile file, ParseSentencePieceFile(bytes, what));
  auto tokenizer = std::make_unique<SentencePieceTokenizer>();
  TRAINCTL_RETURN_IF_ERROR(tokenizer->Init(std::move(file), what));
  return tokenizer;
}

}  // namespace trainctl::tokenizer
