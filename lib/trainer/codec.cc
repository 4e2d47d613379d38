#include "trainer/codec.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"
#include "tokenizer/config_beside.h"
#include "tokenizer/utf8.h"

namespace trainctl::trainer {
namespace {

constexpr int32_t kNumBytes = 256;  // the token behind them ends a document of bytes

absl::StatusOr<model::SpecialTokens> TokensIn(const std::string& path) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return model::ReadSpecialTokens(text, path);
}

}  // namespace

absl::StatusOr<Codec> Codec::Open(const InferenceDeps& deps) {
  Codec codec;
  const recipe::Recipe& recipe = *deps.recipe;
  codec.vocab_ = recipe.model.spec.vocab;
  int64_t& end = codec.end_;
  end = recipe.model.spec.vocab > kNumBytes ? kNumBytes : -1;
  if (recipe.data.tokenizer != "byte") {
    const bool is_there = PathExists(recipe.data.tokenizer) || !PathExists(deps.model_files_path);
    TRAINCTL_ASSIGN_OR_RETURN(
        const std::string file,
        tokenizer::Tokenizer::FindFile(is_there ? recipe.data.tokenizer : deps.model_files_path));
    TRAINCTL_ASSIGN_OR_RETURN(codec.tokenizer_, tokenizer::Tokenizer::Load(file));
    codec.differences_ = tokenizer::DifferencesOfConfigBeside(*codec.tokenizer_, file);
    if (recipe.data.end_of_document != "auto") {
      TRAINCTL_RETURN_IF_ERROR(codec.tokenizer_->SetEndOfDocument(recipe.data.end_of_document));
    }
    end = codec.tokenizer_->end_of_document_id();
  }
  if (end >= 0) codec.ends_.insert(end);
  for (const char* name : {"/generation_config.json", "/config.json"}) {
    const std::string path = deps.model_files_path + name;
    if (!PathExists(path)) continue;
    TRAINCTL_ASSIGN_OR_RETURN(codec.special_, TokensIn(path));  // at last the model's own
    codec.ends_.insert(codec.special_.eos.begin(), codec.special_.eos.end());
  }
  std::vector<int64_t>& eos = codec.special_.eos;
  if (end >= 0 && std::find(eos.begin(), eos.end(), end) == eos.end()) eos.insert(eos.begin(), end);
  return codec;
}

absl::StatusOr<std::vector<int32_t>> Codec::Encode(const std::string& prompt) const {
  if (tokenizer_ == nullptr) {
    const std::string text = prompt.empty() ? "\n" : prompt;
    return std::vector<int32_t>(reinterpret_cast<const unsigned char*>(text.data()),
                                reinterpret_cast<const unsigned char*>(text.data()) + text.size());
  }
  std::vector<int32_t> tokens = tokenizer_->prefix_ids();
  TRAINCTL_RETURN_IF_ERROR(tokenizer_->Encode(prompt, &tokens));
  if (tokens.empty()) TRAINCTL_RETURN_IF_ERROR(tokenizer_->Encode("\n", &tokens));
  if (tokens.empty()) return UsageError("the prompt contains no tokens; use a longer one");
  const int32_t largest = *std::max_element(tokens.begin(), tokens.end());
  if (largest >= vocab_) {
    return UsageError(absl::StrCat("the prompt contains the token ", tokenizer_->TokenOf(largest), " (",
                                   largest, "), but the model has only ", vocab_, " tokens"));
  }
  return tokens;
}

absl::StatusOr<std::string> Codec::Decode(absl::Span<const int32_t> ids) const {
  if (tokenizer_ == nullptr) return tokenizer::RepairUtf8(std::string(ids.begin(), ids.end()));
  std::vector<int32_t> known;  // a model may have more ids than its tokenizer has tokens
  std::copy_if(ids.begin(), ids.end(), std::back_inserter(known),
               [&](int32_t id) { return !tokenizer_->TokenOf(id).empty(); });
  return tokenizer_->Decode(known, /*skip_special=*/true);
}

std::string Codec::end_of_document() const {
  return tokenizer_ == nullptr ? "" : std::string(tokenizer_->TokenOf(tokenizer_->end_of_document_id()));
}

bool Codec::Ends(int32_t token) const {
  return ends_.contains(token) || (tokenizer_ == nullptr && token >= kNumBytes);
}

}  // namespace trainctl::trainer
