#include "tokenizer/tokenizer_json.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/decoder.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/other_files.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/scratch_pool.h"
#include "tokenizer/tokenizer_file.h"
#include "tokenizer/utf8.h"

namespace trainctl::tokenizer {
namespace {

class JsonTokenizer : public Tokenizer {
 public:
  // Takes what it needs out of `file`.
  absl::Status Init(TokenizerFile& file, absl::string_view what);
  absl::Status Encode(absl::string_view text, std::vector<int32_t>* ids) const override;
  absl::StatusOr<std::string> Decode(absl::Span<const int32_t> ids, bool skip_special) const override;
  int32_t IdOf(absl::string_view token) const override {
    const auto found = ids_.find(token);
    return found == ids_.end() ? -1 : found->second;
  }

 private:
  absl::Status ReadVocab(const JsonPart& part, std::vector<std::pair<std::string, int64_t>>& vocab);
  absl::Status ReadModel(const JsonPart& model, TokenizerFile& file);
  absl::Status ReadAddedTokens(const JsonPart& list);
  absl::StatusOr<AddedToken> ReadAddedToken(const JsonPart& entry, int64_t& next_id);
  absl::Status ReadPostProcessor(const JsonPart& part);
  absl::Status ReadTemplate(const JsonPart& part);
  absl::Status ReadClsSep(const JsonPart& part);
  bool HasToken(int64_t id) const {
    return id >= 0 && id < vocab_size() && has_token_[static_cast<size_t>(id)];
  }
  // What is wrong with it; empty: nothing.
  std::string Put(int64_t id, std::string token);

  absl::Status EncodeRaw(absl::string_view text, bool is_first, Scratch& scratch,
                         std::vector<int32_t>* ids) const;
  absl::Status EncodeNormalized(std::string text, bool is_first, Scratch& scratch,
                                std::vector<int32_t>* ids) const;

  absl::flat_hash_map<std::string, int32_t> ids_;
  absl::flat_hash_map<int32_t, std::string> decoded_as_;  // where a token is not decoded as it is spelled
  std::vector<bool> has_token_;  // by id: a published vocabulary has a token without characters
  std::vector<bool> is_special_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  std::unique_ptr<Model> model_;
  Decoder decoder_;
  bool has_decoder_ = false;
  std::unique_ptr<TokenFinder> raw_tokens_;
  std::unique_ptr<TokenFinder> normalized_tokens_;
  mutable ScratchPool scratches_;
};

absl::Status JsonTokenizer::Init(TokenizerFile& file, absl::string_view what) {
  const JsonPart root{&file.rest, absl::StrCat(what, ": ")};
  if (!root.value->is_object() || !root.value->contains("model")) {
    return BadDataError(absl::StrCat(what, ": ", DescribeOtherJson(*root.value, what)));
  }
  TRAINCTL_ASSIGN_OR_RETURN(const std::string version, StringAt(root, "version", "1.0"));
  if (version != "1.0") {
    return root.At("version").Bad(absl::StrCat("= '", version, "' is not supported; only '1.0' is"));
  }
  TRAINCTL_ASSIGN_OR_RETURN(normalizer_, ParseNormalizer(root.At("normalizer")));
  TRAINCTL_ASSIGN_OR_RETURN(pre_tokenizer_, ParsePreTokenizer(root.At("pre_tokenizer")));
  // The reference asks where a word stood before the normalizer.
  if ((MayRemoveFront(normalizer_) && pre_tokenizer_.asks_for_beginning) ||
      (!normalizer_.empty() && pre_tokenizer_.asks_behind_split)) {
    return root.At("pre_tokenizer")
        .Bad(
            "contains a Metaspace with prepend_scheme = 'first' after a normalizer that may remove the "
            "beginning of a text (Strip, Replace by nothing), or after a normalizer and another step, which "
            "is not supported");
  }
  TRAINCTL_ASSIGN_OR_RETURN(decoder_, ParseDecoder(root.At("decoder")));
  has_decoder_ = !root.At("decoder").is_null();
  TRAINCTL_RETURN_IF_ERROR(ReadModel(root.At("model"), file));
  TRAINCTL_RETURN_IF_ERROR(ReadAddedTokens(root.At("added_tokens")));
  TRAINCTL_RETURN_IF_ERROR(ReadPostProcessor(root.At("post_processor")));
  if (tokens_.empty()) return root.At("model").At("vocab").Bad("is empty");
  FindEndOfDocument();
  return absl::OkStatus();
}

std::string JsonTokenizer::Put(int64_t id, std::string token) {
  if (id < 0 || id >= kMaxVocab) return absl::StrCat("= ", id, " is not within 0..", kMaxVocab - 1);
  const auto index = static_cast<size_t>(id);
  if (index >= tokens_.size()) {
    tokens_.resize(index + 1);
    has_token_.resize(tokens_.size());
  }
  if (has_token_[index] && tokens_[index] != token) {
    return absl::StrCat("= ", id, " is also the ID of '", tokens_[index], "'");
  }
  ids_[token] = static_cast<int32_t>(id);
  has_token_[index] = true;
  tokens_[index] = std::move(token);
  return "";
}

absl::Status JsonTokenizer::ReadVocab(const JsonPart& part,
                                      std::vector<std::pair<std::string, int64_t>>& vocab) {
  if (part.is_null() || !part.value->is_object()) return part.Bad("must be an object of tokens and IDs");
  ids_.reserve(vocab.size());
  tokens_.reserve(std::min<size_t>(vocab.size(), kMaxVocab));
  for (std::pair<std::string, int64_t>& entry : vocab) {
    const bool is_new = !ids_.contains(entry.first);
    const std::string problem = is_new ? Put(entry.second, entry.first) : "occurs twice";
    if (!problem.empty()) {
      return JsonPart{nullptr, absl::StrCat(part.where, "['", entry.first, "']")}.Bad(problem);
    }
  }
  vocab.clear();
  vocab.shrink_to_fit();
  return absl::OkStatus();
}

absl::Status JsonTokenizer::ReadModel(const JsonPart& model, TokenizerFile& file) {
  if (model.is_null() || !model.value->is_object()) return model.Bad("must be an object");
  TRAINCTL_ASSIGN_OR_RETURN(const std::string type,
                            StringAt(model, "type", model.At("merges").is_null() ? "" : "BPE"));
  if (type != "BPE") {
    return model.At("type").Bad(absl::StrCat("= '", type, "' is not supported; only BPE is"));
  }
  for (const char* field : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
    TRAINCTL_RETURN_IF_ERROR(RefuseField(model, field));
  }
  TRAINCTL_RETURN_IF_ERROR(ReadVocab(model.At("vocab"), file.vocab));
  const JsonPart merges = model.At("merges");
  if (merges.is_null() || !merges.value->is_array()) return merges.Bad("must be a list");
  BpeOptions options;
  options.byte_level = pre_tokenizer_.byte_level;
  TRAINCTL_ASSIGN_OR_RETURN(options.byte_fallback, BoolAt(model, "byte_fallback", false));
  TRAINCTL_ASSIGN_OR_RETURN(options.fuse_unk, BoolAt(model, "fuse_unk", false));
  TRAINCTL_ASSIGN_OR_RETURN(options.ignore_merges, BoolAt(model, "ignore_merges", false));
  TRAINCTL_ASSIGN_OR_RETURN(options.unk_token, StringAt(model, "unk_token", ""));
  if (options.byte_level && options.byte_fallback) {
    return model.At("byte_fallback").Bad("= true cannot be combined with a ByteLevel pre_tokenizer");
  }
  const std::string what = model.where.substr(0, model.where.rfind(':'));
  TRAINCTL_ASSIGN_OR_RETURN(model_, BpeModel::Create(tokens_, file.merges, options, what));
  kind_ = options.byte_level ? "byte-level BPE" : options.byte_fallback ? "BPE with byte fallback" : "BPE";
  return absl::OkStatus();
}

absl::StatusOr<AddedToken> JsonTokenizer::ReadAddedToken(const JsonPart& entry, int64_t& next_id) {
  AddedToken token;
  TRAINCTL_ASSIGN_OR_RETURN(token.content, StringAt(entry, "content"));
  TRAINCTL_ASSIGN_OR_RETURN(const int64_t id, IntAt(entry, "id"));
  TRAINCTL_ASSIGN_OR_RETURN(token.special, BoolAt(entry, "special", false));
  TRAINCTL_ASSIGN_OR_RETURN(token.single_word, BoolAt(entry, "single_word", false));
  TRAINCTL_ASSIGN_OR_RETURN(token.lstrip, BoolAt(entry, "lstrip", false));
  TRAINCTL_ASSIGN_OR_RETURN(token.rstrip, BoolAt(entry, "rstrip", false));
  TRAINCTL_ASSIGN_OR_RETURN(token.normalized, BoolAt(entry, "normalized", !token.special));
  if (token.content.empty()) return entry.At("content").Bad("is empty");
  // The reference implementation numbers tokens that the model lacks itself, whatever the file says.
  const int32_t known = IdOf(token.content);
  const int64_t expected = known >= 0 ? known : next_id++;
  if (id != expected) {
    return entry.At("id").Bad(absl::StrCat("= ", id, ", but '", token.content, "' has ID ", expected,
                                           known >= 0 ? " in model.vocab" : " by its position in the file"));
  }
  const std::string problem = Put(id, token.content);
  if (!problem.empty()) return entry.At("id").Bad(problem);
  token.id = static_cast<int32_t>(id);
  return token;
}

absl::Status JsonTokenizer::ReadAddedTokens(const JsonPart& list) {
  std::vector<AddedToken> raw;
  std::vector<AddedToken> normalized;
  if (!list.is_null() && !list.value->is_array()) return list.Bad("must be a list");
  int64_t next_id = static_cast<int64_t>(ids_.size());
  Scratch scratch;
  absl::flat_hash_map<std::string, AddedToken> seen;
  for (size_t i = 0; !list.is_null() && i < list.value->size(); ++i) {
    TRAINCTL_ASSIGN_OR_RETURN(AddedToken token, ReadAddedToken(list.At(i), next_id));
    const auto [place, is_new] = seen.try_emplace(token.content, token);
    if (!is_new && place->second == token) continue;
    if (!is_new) return list.At(i).Bad(absl::StrCat("has '", token.content, "' again with different flags"));
    is_special_.resize(tokens_.size());
    if (token.special) {
      is_special_[static_cast<size_t>(token.id)] = true;
      special_ids_.push_back(token.id);
    }
    if (!token.normalized) {
      raw.push_back(std::move(token));
      continue;
    }
    TRAINCTL_RETURN_IF_ERROR(Normalize(normalizer_, token.content, scratch));
    if (token.content.empty()) return list.At(i).Bad("is empty after normalization");
    if (token.content != TokenOf(token.id)) decoded_as_[token.id] = token.content;
    normalized.push_back(std::move(token));
  }
  is_special_.resize(tokens_.size());
  std::sort(special_ids_.begin(), special_ids_.end());
  TRAINCTL_ASSIGN_OR_RETURN(TokenFinder raw_finder, TokenFinder::Create(raw, list.where));
  TRAINCTL_ASSIGN_OR_RETURN(TokenFinder normalized_finder, TokenFinder::Create(normalized, list.where));
  raw_tokens_ = std::make_unique<TokenFinder>(std::move(raw_finder));
  normalized_tokens_ = std::make_unique<TokenFinder>(std::move(normalized_finder));
  return absl::OkStatus();
}

absl::Status JsonTokenizer::ReadPostProcessor(const JsonPart& part) {
  if (part.is_null()) return absl::OkStatus();
  TRAINCTL_ASSIGN_OR_RETURN(const std::string type, TypeOf(part));
  if (type == "ByteLevel") return absl::OkStatus();  // offsets only
  if (type == "TemplateProcessing") return ReadTemplate(part);
  if (type == "RobertaProcessing" || type == "BertProcessing") return ReadClsSep(part);
  if (type == "Sequence") {
    const JsonPart list = part.At("processors");
    if (list.is_null() || !list.value->is_array()) return list.Bad("must be a list");
    for (size_t i = 0; i < list.value->size(); ++i) TRAINCTL_RETURN_IF_ERROR(ReadPostProcessor(list.At(i)));
    return absl::OkStatus();
  }
  return part.At("type").Bad(absl::StrCat("= '", type,
                                          "' is not supported; use Sequence, ByteLevel, TemplateProcessing, "
                                          "RobertaProcessing or BertProcessing"));
}

// [["</s>", 2], ...]: `cls` stands before, `sep` behind.
absl::Status JsonTokenizer::ReadClsSep(const JsonPart& part) {
  for (const char* key : {"cls", "sep"}) {
    const JsonPart pair = part.At(key);
    if (pair.is_null() || !pair.value->is_array() || pair.value->size() != 2 ||
        !(*pair.value)[1].is_number_integer()) {
      return pair.Bad("must be [token, id]");
    }
    const auto id = (*pair.value)[1].get<int64_t>();
    if (!HasToken(id)) return pair.Bad(absl::StrCat("contains the ID ", id, ", which no token has"));
    if (absl::string_view(key) == "cls") {
      prefix_ids_.insert(prefix_ids_.begin(), static_cast<int32_t>(id));
    } else {
      suffix_ids_.push_back(static_cast<int32_t>(id));
    }
  }
  return absl::OkStatus();
}

absl::Status JsonTokenizer::ReadTemplate(const JsonPart& part) {
  const JsonPart single = part.At("single");
  if (single.is_null() || !single.value->is_array()) return single.Bad("must be a list");
  std::vector<int32_t> before;
  std::vector<int32_t> behind;
  int num_texts = 0;
  for (size_t i = 0; i < single.value->size(); ++i) {
    const JsonPart item = single.At(i);
    if (!item.At("Sequence").is_null()) {
      TRAINCTL_ASSIGN_OR_RETURN(const std::string which, StringAt(item.At("Sequence"), "id"));
      if (which != "A") return item.Bad("must be of sequence A");
      ++num_texts;
      continue;
    }
    TRAINCTL_ASSIGN_OR_RETURN(const std::string name, StringAt(item.At("SpecialToken"), "id"));
    const JsonPart ids = part.At("special_tokens").At(name).At("ids");
    if (ids.is_null() || !ids.value->is_array()) return ids.Bad("must be a list of IDs");
    for (const Json& id : *ids.value) {
      if (!id.is_number_unsigned() || id.get<uint64_t>() >= tokens_.size() || !HasToken(id.get<int64_t>())) {
        return ids.Bad(absl::StrCat("contains ", FormatJson(id), ", which is not a token's ID"));
      }
      (num_texts == 0 ? before : behind).push_back(id.get<int32_t>());
    }
  }
  if (num_texts != 1)
    return single.Bad(absl::StrCat("contains the text ", num_texts, " times instead of once"));
  prefix_ids_.insert(prefix_ids_.begin(), before.begin(), before.end());
  suffix_ids_.insert(suffix_ids_.end(), behind.begin(), behind.end());
  return absl::OkStatus();
}

absl::Status JsonTokenizer::Encode(absl::string_view text, std::vector<int32_t>* ids) const {
  std::string repaired;
  TRAINCTL_ASSIGN_OR_RETURN(text, CheckedText(text, kMaxTextBytes, &repaired));
  const ScratchPool::Lease scratch(scratches_);
  if (raw_tokens_->empty()) return EncodeRaw(text, true, *scratch, ids);
  std::vector<TokenFinder::Part> parts;
  TRAINCTL_RETURN_IF_ERROR(raw_tokens_->Split(text, (*scratch).match, &parts));
  for (const TokenFinder::Part& part : parts) {
    if (part.id >= 0) {
      ids->push_back(part.id);
      continue;
    }
    TRAINCTL_RETURN_IF_ERROR(EncodeRaw(text.substr(part.span.begin, part.span.end - part.span.begin),
                                       part.span.begin == 0, *scratch, ids));
  }
  return absl::OkStatus();
}

absl::Status JsonTokenizer::EncodeRaw(absl::string_view text, bool is_first, Scratch& scratch,
                                      std::vector<int32_t>* ids) const {
  std::string normalized(text);
  TRAINCTL_RETURN_IF_ERROR(Normalize(normalizer_, normalized, scratch));
  if (normalized_tokens_->empty()) return EncodeNormalized(std::move(normalized), is_first, scratch, ids);
  std::vector<TokenFinder::Part> parts;
  TRAINCTL_RETURN_IF_ERROR(normalized_tokens_->Split(normalized, scratch.match, &parts));
  for (const TokenFinder::Part& part : parts) {
    if (part.id >= 0) {
      ids->push_back(part.id);
      continue;
    }
    TRAINCTL_RETURN_IF_ERROR(
        EncodeNormalized(normalized.substr(part.span.begin, part.span.end - part.span.begin),
                         is_first && part.span.begin == 0, scratch, ids));
  }
  return absl::OkStatus();
}

absl::Status JsonTokenizer::EncodeNormalized(std::string text, bool is_first, Scratch& scratch,
                                             std::vector<int32_t>* ids) const {
  if (text.empty()) return absl::OkStatus();
  Pieces pieces;
  pieces.words.push_back({0, text.size()});
  pieces.text = std::move(text);
  pieces.is_first = is_first;
  for (const auto& step : pre_tokenizer_.steps) TRAINCTL_RETURN_IF_ERROR(step->Apply(pieces, scratch));
  for (const Span& word : pieces.words) {
    const absl::string_view piece(pieces.text.data() + word.begin, word.end - word.begin);
    if (pre_tokenizer_.last_split == nullptr) {
      model_->EncodeWord(piece, scratch, ids);
      continue;
    }
    TRAINCTL_RETURN_IF_ERROR(
        pre_tokenizer_.last_split->ForEach(piece, scratch.match, [&](const Match& match) {
          if (match.span.begin == match.span.end) return;
          model_->EncodeWord(piece.substr(match.span.begin, match.span.end - match.span.begin), scratch, ids);
        }));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> JsonTokenizer::Decode(absl::Span<const int32_t> ids, bool skip_special) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const int32_t id : ids) {
    if (!HasToken(id)) {
      return UsageError(
          absl::StrCat("ID ", id, " is not in the tokenizer, whose IDs are 0 to ", vocab_size() - 1));
    }
    if (skip_special && is_special_[static_cast<size_t>(id)]) continue;
    const auto other = decoded_as_.find(id);
    tokens.emplace_back(other != decoded_as_.end() ? other->second : tokens_[static_cast<size_t>(id)]);
  }
  if (!has_decoder_) return absl::StrJoin(tokens, " ");
  const ScratchPool::Lease scratch(scratches_);
  for (const auto& step : decoder_) TRAINCTL_RETURN_IF_ERROR(step->Apply(tokens, *scratch));
  return absl::StrJoin(tokens, "");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> ParseTokenizerJson(absl::string_view text,
                                                              absl::string_view what) {
  TRAINCTL_ASSIGN_OR_RETURN(TokenizerFile file, ParseTokenizerFile(text, what));
  auto tokenizer = std::make_unique<JsonTokenizer>();
  TRAINCTL_RETURN_IF_ERROR(tokenizer->Init(file, what));
  return tokenizer;
}

}  // namespace trainctl::tokenizer
