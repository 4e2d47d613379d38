#include "tokenizer/added_tokens.h"

#include <algorithm>

#include "base/status.h"
#include "tokenizer/utf8.h"

namespace trainctl::tokenizer {
namespace {

// As the reference implementation sees words here: with the two joiners, unlike in the patterns of a file.
constexpr absl::string_view kWordCharacter = R"([\w\x{200c}\x{200d}])";

}  // namespace

absl::StatusOr<TokenFinder> TokenFinder::Create(const std::vector<AddedToken>& tokens,
                                                absl::string_view what) {
  TokenFinder finder;
  finder.tokens_ = tokens;
  if (tokens.empty()) return finder;
  finder.nodes_.emplace_back();
  for (size_t i = 0; i < tokens.size(); ++i) {
    size_t node = 0;
    for (const char c : tokens[i].content) {
      const auto next = static_cast<int32_t>(finder.nodes_.size());
      const auto [place, is_new] = finder.nodes_[node].next.try_emplace(static_cast<uint8_t>(c), next);
      node = static_cast<size_t>(place->second);
      if (is_new) finder.nodes_.emplace_back();
    }
    if (finder.nodes_[node].token >= 0) {
      return BadDataError(absl::StrCat(what, ": the token '", tokens[i].content, "' occurs twice"));
    }
    finder.nodes_[node].token = static_cast<int32_t>(i);
    finder.begins_[static_cast<uint8_t>(tokens[i].content.front())] = true;
  }
  if (std::any_of(tokens.begin(), tokens.end(), [](const AddedToken& token) { return token.single_word; })) {
    TRAINCTL_ASSIGN_OR_RETURN(finder.word_, Pattern::Compile(kWordCharacter, what));
  }
  return finder;
}

int32_t TokenFinder::LongestAt(absl::string_view text, size_t position) const {
  int32_t longest = -1;
  size_t node = 0;
  for (size_t at = position; at < text.size(); ++at) {
    const auto& next = nodes_[node].next;
    const auto found = next.find(static_cast<uint8_t>(text[at]));
    if (found == next.end()) break;
    node = static_cast<size_t>(found->second);
    if (nodes_[node].token >= 0) longest = nodes_[node].token;
  }
  return longest;
}

absl::StatusOr<bool> TokenFinder::IsWithinWord(absl::string_view text, Span match,
                                               MatchScratch& scratch) const {
  std::vector<absl::string_view> neighbours;
  if (match.begin > 0) {
    size_t begin = match.begin - 1;
    while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xC0U) == 0x80) --begin;
    neighbours.push_back(text.substr(begin, match.begin - begin));
  }
  if (match.end < text.size()) neighbours.push_back(text.substr(match.end, CharBytes(text[match.end])));
  for (const absl::string_view character : neighbours) {
    std::vector<Match> found;
    TRAINCTL_RETURN_IF_ERROR(word_->FindAll(character, scratch, &found));
    if (found.front().is_match) return true;
  }
  return false;
}

absl::Status TokenFinder::Split(absl::string_view text, MatchScratch& scratch,
                                std::vector<Part>* parts) const {
  size_t covered = 0;
  size_t at = tokens_.empty() ? text.size() : 0;
  while (at < text.size()) {
    if (!begins_[static_cast<uint8_t>(text[at])]) {
      ++at;
      continue;
    }
    const int32_t index = LongestAt(text, at);
    if (index < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(index)];
    Span match{at, at + token.content.size()};
    at = match.end;
    if (token.single_word) {
      TRAINCTL_ASSIGN_OR_RETURN(const bool within, IsWithinWord(text, match, scratch));
      if (within) continue;
    }
    if (token.lstrip) {
      match.begin = std::max(match.begin - TrailingSpaceBytes(text.substr(0, match.begin)), covered);
    }
    if (token.rstrip) match.end += LeadingSpaceBytes(text.substr(match.end));
    // White space that the token before has taken is no token of its own.
    if (match.begin >= match.end) continue;
    if (match.begin > covered) parts->push_back({{covered, match.begin}, -1});
    parts->push_back({match, token.id});
    covered = std::max(covered, match.end);
  }
  if (covered < text.size()) parts->push_back({{covered, text.size()}, -1});
  return absl::OkStatus();
}

}  // namespace trainctl::tokenizer
