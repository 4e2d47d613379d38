// Files that are refused, and what the comparison with the reference implementation (tests/tokenizer) cannot
// show.
#include "tokenizer/tokenizer_json.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "base/status.h"

namespace trainctl::tokenizer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Json = nlohmann::json;

Json Small() {
  return Json::parse(R"({"version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [{"id": 5, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
                      "normalized": false, "special": true},
                     {"id": 6, "content": "</s>", "single_word": false, "lstrip": false, "rstrip": true,
                      "normalized": false, "special": true}],
    "normalizer": {"type": "NFC"},
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [5], "tokens": ["<s>"]}}},
    "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "",
      "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
      "vocab": {"a": 0, "b": 1, "\u0120": 2, "ab": 3, "\u0120ab": 4}, "merges": ["a b", ["\u0120", "ab"]]}})");
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Parse(const Json& file) {
  return ParseTokenizerJson(file.dump(), "t.json");
}

std::vector<int32_t> IdsOf(const Tokenizer& tokenizer, absl::string_view text) {
  std::vector<int32_t> ids;
  EXPECT_TRUE(tokenizer.Encode(text, &ids).ok());
  return ids;
}

TEST(TokenizerJson, EncodesAndDecodes) {
  const auto tokenizer = Parse(Small());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  std::vector<int32_t> ids;
  ASSERT_TRUE((*tokenizer)->EncodeDocument("ab ab</s>  a", &ids).ok());
  EXPECT_THAT(ids, ElementsAre(5, 3, 4, 6, 0));
  EXPECT_EQ(*(*tokenizer)->Decode(ids, false), "<s>ab ab</s>a");
  EXPECT_EQ(*(*tokenizer)->Decode(ids, true), "ab aba");
  EXPECT_EQ((*tokenizer)->vocab_size(), 7);
  EXPECT_EQ((*tokenizer)->end_of_document_id(), 6);
  EXPECT_EQ((*tokenizer)->IdOf("ab"), 3);
  EXPECT_EQ((*tokenizer)->IdOf("x"), -1);
  EXPECT_THAT((*tokenizer)->Decode({7}, false).status().message(),
              HasSubstr("ID 7 is not in the tokenizer, whose IDs are 0 to 6"));
  EXPECT_EQ(ExitCodeFor((*tokenizer)->Decode({-1}, false).status()), ExitCode::kUsage);
}

// As in the vocabulary of a published model (Whisper); an id between others may have no token at all.
TEST(TokenizerJson, ATokenWithoutCharactersIsNotAnIdWithoutToken) {
  Json file = Small();
  file["model"]["vocab"][""] = 8;
  file["added_tokens"] = Json::array();
  file["post_processor"] = nullptr;
  const auto tokenizer = Parse(file);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->vocab_size(), 9);
  EXPECT_EQ((*tokenizer)->IdOf(""), 8);
  EXPECT_EQ(*(*tokenizer)->Decode({3, 8, 0}, false), "aba");
  EXPECT_THAT((*tokenizer)->Decode({7}, false).status().message(), HasSubstr("ID 7 is not in the tokenizer"));
  file["post_processor"] = Small()["post_processor"];
  file["post_processor"]["special_tokens"]["<s>"]["ids"] = {7};
  EXPECT_THAT(Parse(file).status().message(), HasSubstr("contains 7, which is not a token's ID"));
  file["model"]["vocab"]["c"] = 8;
  EXPECT_THAT(Parse(file).status().message(), HasSubstr("= 8 is also the ID of '"));
}

TEST(TokenizerJson, WhatIsNotKnownIsRefusedByItsField) {
  struct Case {
    const char* pointer;
    const char* value;
    const char* message;
  };
  const Case cases[] = {
      {"/model/type", R"("WordPiece")", "t.json: model.type = 'WordPiece' is not supported"},
      {"/model/dropout", "0.1", "t.json: model.dropout is not supported"},
      {"/model/end_of_word_suffix", R"("</w>")", "t.json: model.end_of_word_suffix is not supported"},
      {"/model/merges/0", R"("a")", "t.json: model.merges[0] = 'a' is not two tokens"},
      {"/model/merges/1", R"(["a", "a"])", "t.json: model.merges[1] ('a' and 'a') requires the token 'aa'"},
      {"/model/vocab/a", "-1", "t.json: model.vocab['a'] must be a whole number"},
      {"/model/vocab/a", "99999999", "t.json: model.vocab['a'] = 99999999 is not within 0.."},
      {"/model/vocab/b", "0", "t.json: model.vocab['b'] = 0 is also the ID of 'a'"},
      {"/model/vocab", "{}", "t.json: model.merges[0]"},
      {"/model", "3", "t.json: model must be an object"},
      {"/normalizer/type", R"("BertNormalizer")",
       "t.json: normalizer.type = 'BertNormalizer' is not supported"},
      {"/normalizer", R"({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Nmt"}]})",
       "t.json: normalizer.normalizers[1].type = 'Nmt'"},
      {"/pre_tokenizer/type", R"("BertPreTokenizer")", "t.json: pre_tokenizer.type = 'BertPreTokenizer'"},
      {"/pre_tokenizer", R"({"type": "Split", "pattern": {"Regex": "(a"}, "behavior": "Isolated"})",
       "t.json: pre_tokenizer.pattern.Regex"},
      {"/pre_tokenizer",
       R"({"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}, {"type": "Digits"}]})",
       "t.json: pre_tokenizer.pretokenizers[1] follows ByteLevel"},
      {"/decoder/type", R"("WordPiece")", "t.json: decoder.type = 'WordPiece'"},
      {"/post_processor/special_tokens/<s>/ids/0", "7",
       "t.json: post_processor.special_tokens.<s>.ids contains 7"},
      {"/post_processor/single", "[]", "t.json: post_processor.single contains the text 0 times"},
      {"/added_tokens/0/id", "4",
       "t.json: added_tokens[0].id = 4, but '<s>' has ID 5 by its position in the file"},
      {"/added_tokens/0/content", R"("ab")",
       "t.json: added_tokens[0].id = 5, but 'ab' has ID 3 in model.vocab"},
      {"/version", R"("2.0")", "t.json: version = '2.0' is not supported"},
      {"/version", "1", "t.json: version must be a string"},
      {"/added_tokens/2",
       R"({"id": 5, "content": "<s>", "normalized": false, "special": true, "rstrip": true})",
       "t.json: added_tokens[2] has '<s>' again"},
      {"/added_tokens/0/special", "1", "t.json: added_tokens[0].special must be true or false"},
  };
  for (const Case& c : cases) {
    Json file = Small();
    file[Json::json_pointer(c.pointer)] = Json::parse(c.value);
    const auto tokenizer = Parse(file);
    ASSERT_FALSE(tokenizer.ok()) << c.pointer;
    EXPECT_EQ(ExitCodeFor(tokenizer.status()), ExitCode::kBadData);
    EXPECT_THAT(tokenizer.status().message(), HasSubstr(c.message));
  }
  EXPECT_THAT(ParseTokenizerJson("{\"a\": ", "t.json").status().message(), HasSubstr("t.json:1:"));
  EXPECT_THAT(ParseTokenizerJson("[]", "t.json").status().message(), HasSubstr("t.json: "));
}

// Vocabulary and merges are read apart from the rest of the file, at their place only.
TEST(TokenizerJson, VocabularyAndMergesAreThoseOfTheModel) {
  const auto parse = [](absl::string_view vocab, absl::string_view merges, absl::string_view rest = "") {
    return ParseTokenizerJson(
        absl::StrCat(
            R"({"vocab": {"x": {}}, "merges": [1], "n": {"model": {"vocab": {"y": "z"}, "merges": [[2]]}}, )",
            R"("l": [{"vocab": {"y": [0]}}, {"model": {"merges": [null]}}], "model": {"vocab": {)", vocab,
            R"(}, "n": {"vocab": {"q": null}, "merges": [3]}, "merges": [)", merges, "]}", rest, "}"),
        "t.json");
  };
  const auto tokenizer =
      parse(R"("b": 1, "a": 0, "ab": 2)", R"("#version: 0.2", "a b")", R"(, "w": {"vocab": {"z": 1}})");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->vocab_size(), 3);
  EXPECT_THAT(IdsOf(**tokenizer, "abba"), ElementsAre(2, 1, 0));
  struct Case {
    const char* vocab;
    const char* merges;
    const char* message;
  };
  const Case cases[] = {
      {R"("a": 0, "a": 1)", "", "t.json: model.vocab['a'] occurs twice"},
      {R"("a": 0, "a": 0)", "", "t.json: model.vocab['a'] occurs twice"},
      {R"("a": 0, "b": 1.5)", "", "t.json: model.vocab['b'] must be a whole number"},
      {R"("a": 0, "b": "1")", "", "t.json: model.vocab['b'] must be a whole number"},
      {R"("a": {"b": 0})", "", "t.json: model.vocab['a'] must be a whole number"},
      {R"("a": [0])", "", "t.json: model.vocab['a'] must be a whole number"},
      {R"("a": 18446744073709551615)", "", "t.json: model.vocab['a'] = 9223372036854775807 is not within"},
      {R"("a": 0)", "\"a a a\"", "t.json: model.merges[0] = 'a a a' is not two tokens"},
      {R"("a": 0, "aa": 1)", R"("a a", " a")", "t.json: model.merges[1] = ' a' is not two tokens"},
      {R"("a": 0, "aa": 1)", R"(["a", "a"], ["a"])", "t.json: model.merges[1] must be \"a b\" or"},
      {R"("a": 0)", R"(["a", "a", "a"])", "t.json: model.merges[0] must be \"a b\" or"},
      {R"("a": 0)", R"(["a", 1])", "t.json: model.merges[0] must be \"a b\" or"},
      {R"("a": 0)", R"([["a"]])", "t.json: model.merges[0] must be \"a b\" or"},
      {R"("a": 0)", R"({"a": 1})", "t.json: model.merges[0] must be \"a b\" or"},
      {R"("a": 0)", "7", "t.json: model.merges[0] must be \"a b\" or"},
      {R"("a": 0, "b": 1, "ab": 2)", R"("a b", "b a")",
       "t.json: model.merges[1] ('b' and 'a') requires the token 'ba'"},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(parse(c.vocab, c.merges).status().message(), HasSubstr(c.message)) << c.vocab << c.merges;
  }
}

TEST(TokenizerJson, TheSameAddedTokenTwiceIsOne) {
  Json file = Small();
  file["added_tokens"].push_back(file["added_tokens"][0]);
  const auto tokenizer = Parse(file);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->vocab_size(), 7);
  EXPECT_THAT((*tokenizer)->special_ids(), ElementsAre(5, 6));
}

// A joiner makes a word longer for added tokens (not for \w in a pattern).
TEST(TokenizerJson, ATokenThatIsASingleWordDoesNotTouchAnother) {
  Json file = Small();
  file["added_tokens"][0]["single_word"] = true;
  const auto tokenizer = Parse(file);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(IdsOf(**tokenizer, "<s>"), ElementsAre(5));
  EXPECT_THAT(IdsOf(**tokenizer, "<s>\u00B2"), ElementsAre(5));
  for (const char* neighbour : {"a", "_", "\u0301", "\u200C", "\u200D"}) {
    const std::vector<int32_t> ids = IdsOf(**tokenizer, absl::StrCat("<s>", neighbour));
    EXPECT_EQ(std::count(ids.begin(), ids.end(), 5), 0) << neighbour;
  }
}

// </s> takes the spaces behind it, so the token of a space that takes spaces before it finds none left.
TEST(TokenizerJson, WhiteSpaceThatIsTakenIsNotTakenAgain) {
  Json file = Small();
  file["added_tokens"].push_back(
      {{"id", 7}, {"content", " "}, {"normalized", false}, {"special", false}, {"lstrip", true}});
  const auto tokenizer = Parse(file);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(IdsOf(**tokenizer, "</s>  a"), ElementsAre(6, 0));
  EXPECT_THAT(IdsOf(**tokenizer, "a  a"), ElementsAre(0, 7, 7, 0));
}

TEST(TokenizerJson, AMarkAtTheBeginningNeedsToKnowTheBeginning) {
  Json file = Small();
  file["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "first"}};
  for (const char* normalizer : {R"({"type": "Strip", "strip_left": true, "strip_right": false})",
                                 R"({"type": "Sequence", "normalizers": [{"type": "NFC"},
            {"type": "Replace", "pattern": {"String": " "}, "content": ""}]})"}) {
    file["normalizer"] = Json::parse(normalizer);
    EXPECT_THAT(Parse(file).status().message(), HasSubstr("t.json: pre_tokenizer contains a Metaspace with"));
  }
  file["normalizer"] = {{"type", "Strip"}, {"strip_left", false}, {"strip_right", true}};
  EXPECT_TRUE(Parse(file).ok());
  Json behind_split = file;
  behind_split["pre_tokenizer"] = {{"type", "Sequence"}};
  behind_split["pre_tokenizer"]["pretokenizers"] = Json::array({{{"type", "Digits"}}, file["pre_tokenizer"]});
  EXPECT_THAT(Parse(behind_split).status().message(), HasSubstr("or after a normalizer and another step"));
  behind_split["normalizer"] = nullptr;
  EXPECT_TRUE(Parse(behind_split).ok());
  file["normalizer"] = {{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}};
  file["pre_tokenizer"]["prepend_scheme"] = "always";
  EXPECT_TRUE(Parse(file).ok());
}

// Twelve steps of ten times each would make 10^12 bytes of one.
TEST(TokenizerJson, ATextDoesNotGrowWithoutBound) {
  Json steps = Json::array();
  for (int i = 0; i < 12; ++i) {
    steps.push_back({{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(10, 'a')}});
  }
  Json encodes = Small(), decodes = Small();
  encodes["normalizer"] = {{"type", "Sequence"}, {"normalizers", steps}};
  std::vector<int32_t> ids;
  const absl::Status encoded = (*Parse(encodes))->Encode("a", &ids);
  EXPECT_EQ(ExitCodeFor(encoded), ExitCode::kBadData);
  EXPECT_THAT(std::string(encoded.message()), HasSubstr("turns a text of "));
  steps.push_back({{"type", "Fuse"}});
  decodes["decoder"] = {{"type", "Sequence"}, {"decoders", steps}};
  EXPECT_EQ(ExitCodeFor((*Parse(decodes))->Decode({0}, false).status()), ExitCode::kBadData);
}

TEST(TokenizerJson, BytesThatAreNotUtf8AreReadAsTheMarkForThem) {
  const auto tokenizer = Parse(Small());
  std::vector<int32_t> with_bytes;
  std::vector<int32_t> with_mark;
  ASSERT_TRUE((*tokenizer)->Encode("a\xFF\xE2\x82 ab", &with_bytes).ok());
  ASSERT_TRUE((*tokenizer)->Encode("a\uFFFD\uFFFD ab", &with_mark).ok());
  EXPECT_EQ(with_bytes, with_mark);
}

TEST(TokenizerJson, ManyThreadsUseOneTokenizer) {
  const auto tokenizer = Parse(Small());
  std::vector<std::string> texts;
  for (int i = 0; i < 300; ++i)
    texts.push_back(std::string(static_cast<size_t>(i % 70), 'a') + " ab b</s>" + std::to_string(i));
  const auto encode_all = [&] {
    std::vector<std::vector<int32_t>> all(texts.size());
    for (size_t i = 0; i < texts.size(); ++i)
      EXPECT_TRUE((*tokenizer)->EncodeDocument(texts[i], &all[i]).ok());
    return all;
  };
  const auto expected = encode_all();
  std::vector<std::vector<std::vector<int32_t>>> results(4);
  std::vector<std::thread> threads;
  for (auto& result : results) threads.emplace_back([&result, &encode_all] { result = encode_all(); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, expected);
}

}  // namespace
}  // namespace trainctl::tokenizer
