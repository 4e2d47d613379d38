#include "tokenizer/code_points.h"

#include <gmock/gmock.h>

#include "tokenizer/stand_ins.h"
#include "tokenizer/utf8.h"

namespace trainctl::tokenizer {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(CodePointSet, RangesThatTouchAreOneAndSurrogatesAreInNone) {
  CodePointSet set;
  set.Add(10, 20);
  set.Add(30, 40);
  set.Add(21, 25);
  EXPECT_THAT(set.ranges(), ElementsAre(CodePointRange{10, 25}, CodePointRange{30, 40}));
  set.Add(0, 29);
  EXPECT_THAT(set.ranges(), ElementsAre(CodePointRange{0, 40}));
  set.Add(0xD000, 0xE001);
  set.Add(0xD800, 0xDFFF);
  EXPECT_THAT(set.ranges(), ElementsAre(CodePointRange{0, 40}, CodePointRange{0xD000, 0xD7FF},
                                        CodePointRange{0xE000, 0xE001}));
  EXPECT_THAT(set.Complement().ranges(),
              ElementsAre(CodePointRange{41, 0xCFFF}, CodePointRange{0xE002, kMaxCodePoint}));
  EXPECT_EQ(set.Complement().Complement(), set);
  EXPECT_TRUE(set.Contains(0xE000));
  EXPECT_FALSE(set.Contains(0xD800));
  EXPECT_FALSE(set.Contains(41));
}

// Values of UnicodeData.txt and Scripts.txt, each with the version that added the character.
TEST(CodePoints, PropertiesAreThoseOfUnicode16) {
  const struct {
    uint32_t code_point;
    const char* category;
    const char* script;
  } characters[] = {
      {'a', "Ll", "Latin"},       {'_', "Pc", "Common"},       {0x0301, "Mn", "Inherited"},
      {0x00BD, "No", "Common"},   {0x01C5, "Lt", "Latin"},     {0x2160, "Nl", "Latin"},
      {0x4E00, "Lo", "Han"},      {0x10FFFF, "Cn", "Unknown"}, {0xE000, "Co", "Unknown"},
      {0x0CF3, "Mc", "Kannada"},  {0x1FAE8, "So", "Common"},   {0x11F50, "Nd", "Kawi"},   // 15.0
      {0x31350, "Lo", "Hani"},    {0x323AF, "Lo", "Han"},                                 // 15.0
      {0x2EBF0, "Lo", "Han"},     {0x2FFC, "So", "Common"},                               // 15.1
      {0x1C89, "Lu", "Cyrillic"}, {0xA7CB, "Lu", "Latin"},     {0x10D40, "Nd", "Garay"},  // 16.0
      {0x0897, "Mn", "Arabic"},   {0x1E5FF, "Po", "Ol_Onal"},                             // 16.0
      {0x11DE0, "Cn", "Unknown"}, {0x323B0, "Cn", "Unknown"},                             // not yet
  };
  for (const auto& c : characters) {
    EXPECT_TRUE(CharactersWith(c.category)->Contains(c.code_point)) << std::hex << c.code_point;
    EXPECT_TRUE(CharactersWith(std::string(1, *c.category))->Contains(c.code_point))
        << std::hex << c.code_point;
    EXPECT_TRUE(CharactersWith(c.script)->Contains(c.code_point)) << std::hex << c.code_point;
  }
  EXPECT_EQ(CharactersWith("old_italic"), CharactersWith("Ital"));
  EXPECT_THAT(CharactersWith("Cs")->ranges(), IsEmpty());
  for (const char* unknown : {"", "_", "X", "Lx", "Klingon", "Letter"}) {
    EXPECT_FALSE(CharactersWith(unknown).has_value()) << unknown;
  }
}

TEST(CodePoints, EveryCharacterHasOneCategory) {
  CodePointSet all;
  uint32_t num_characters = 0;
  for (const char* category : {"L", "M", "N", "P", "S", "Z", "C"}) {
    const CodePointSet set = *CharactersWith(category);
    all.Add(set);
    for (const CodePointRange& range : set.ranges()) {
      num_characters += range.last - range.first + 1;
    }
  }
  EXPECT_EQ(num_characters, kMaxCodePoint + 1 - 0x800);
  EXPECT_THAT(all.Complement().ranges(), IsEmpty());
}

TEST(CodePoints, EarlierVersionsKnewLess) {
  EXPECT_TRUE(PunctuationOfUnicode8().Contains(0x166D));   // a symbol since 12.0
  EXPECT_FALSE(PunctuationOfUnicode8().Contains(0x2E43));  // since 9.0
  EXPECT_FALSE(IsLaterThanUnicode9(0x2E43));
  EXPECT_TRUE(IsLaterThanUnicode9(0x09FD));  // since 10.0
  EXPECT_TRUE(IsLaterThanUnicode9(0x323B0));
  EXPECT_FALSE(IsLaterThanUnicode9('a'));
}

TEST(StandIns, CharactersOfTheSameSetsAndLengthShareOne) {
  CodePointSet fixed;
  fixed.Add(0x4E01, 0x4E01);
  const StandIns stand_ins({*CharactersWith("L"), *CharactersWith("Han")}, fixed);
  std::string buffer;
  const auto replaced = [&](absl::string_view text) { return std::string(stand_ins.Replace(text, &buffer)); };
  const std::string same = replaced("\u00E9");
  EXPECT_EQ(replaced("a\u00FFb\u0416"), "a" + same + "b" + same);  // letters of two bytes
  EXPECT_EQ(replaced("\u4E00\u4E02"), replaced("\u4E03\u4E04"));
  EXPECT_EQ(replaced("x\u4E01"), "x\u4E01");
  EXPECT_NE(replaced("\u4E00"), replaced("\uAC00"));      // Han and not
  EXPECT_NE(replaced("\u4E00"), replaced("\U00020000"));  // three bytes and four
  EXPECT_EQ(replaced("\U00020000\U0001F600").size(), 8U);
  for (const char* letter : {"\u00E9", "\u4E00", "\u4E01", "\uAC00", "\U00020000"}) {
    const std::string text = replaced(letter);
    EXPECT_TRUE(stand_ins.members()[0].in.Contains(FrontCodePoint(text)));
    EXPECT_FALSE(stand_ins.members()[0].out.Contains(FrontCodePoint(text)));
  }
  EXPECT_TRUE(stand_ins.members()[1].out.Contains('a'));
}

TEST(StandIns, ATextOfAsciiAndOneThatNoSetDistinguishesStayAsTheyAre) {
  std::string buffer;
  const absl::string_view text = "plain text, longer than eight bytes";
  EXPECT_EQ(StandIns({*CharactersWith("L")}, {}).Replace(text, &buffer).data(), text.data());
  CodePointSet ascii;
  ascii.Add('0', '9');
  const StandIns unneeded({ascii, ascii.Complement()}, {});
  EXPECT_TRUE(unneeded.is_identity());
  EXPECT_EQ(unneeded.members()[0].in, unneeded.members()[1].out);
}

}  // namespace
}  // namespace trainctl::tokenizer
