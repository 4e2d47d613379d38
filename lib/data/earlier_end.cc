#include "data/earlier_end.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "data/batch_source.h"
#include "tokenizer/tokenizer.h"

namespace trainctl::data {
namespace {

using tokenizer::Tokenizer;

std::string TokensOf(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  std::string text;
  for (const int32_t id : ids) absl::StrAppend(&text, tokenizer.TokenOf(id));
  return text;
}

// The token as recipes spell it; "none" if there is no token.
std::string EndOf(const Tokenizer& tokenizer) {
  const absl::string_view token = tokenizer.TokenOf(tokenizer.end_of_document_id());
  return token.empty() ? "none" : std::string(token);
}

std::string EndChoiceNote(const std::string& kept, const std::string& now) {
  if (kept == now) return "";
  return absl::StrCat(
      "this run was started by an earlier version of trainctl, so its documents still end with ", kept,
      "; in a new run, data.end_of_document = \"auto\" means ", now);
}

// Earlier versions added the tokens around a text even if the text already contained them.
std::string AddedTokensNote(const Tokenizer& tokenizer) {
  std::string tokens = TokensOf(tokenizer, tokenizer.prefix_ids());
  const std::string suffix = TokensOf(tokenizer, tokenizer.suffix_ids());
  if (!suffix.empty()) absl::StrAppend(&tokens, tokens.empty() ? "" : " or ", suffix);
  if (tokens.empty()) return "";
  return absl::StrCat(
      "this run was started by an earlier version of trainctl: a text that already begins or ends with ",
      tokens, " used to get it twice and now gets it only once");
}

}  // namespace

std::vector<std::string> KeepEarlierEnd(recipe::DataConfig& data) {
  if (data.tokenizer == "byte" || data.end_of_document != "auto") return {};
  const absl::StatusOr<std::unique_ptr<Tokenizer>> now = Tokenizer::Load(data.tokenizer);
  const absl::StatusOr<std::string> file = Tokenizer::FindFile(data.tokenizer);
  if (!now.ok() || !file.ok()) return {};
  const absl::StatusOr<std::string> bytes = ReadFile(*file);
  if (!bytes.ok()) return {};
  const absl::StatusOr<std::unique_ptr<Tokenizer>> by_itself = Tokenizer::Parse(*bytes, *file);
  if (!by_itself.ok()) return {};
  data.end_of_document = EndOf(**by_itself);
  if (BytesReadAtOpening(data) == 0) return {};  // the tokens are in indexed datasets
  std::vector<std::string> notes;
  for (std::string note : {EndChoiceNote(data.end_of_document, EndOf(**now)), AddedTokensNote(**now)}) {
    if (!note.empty()) notes.push_back(std::move(note));
  }
  return notes;
}

}  // namespace trainctl::data
