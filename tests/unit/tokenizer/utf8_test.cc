#include "tokenizer/utf8.h"

#include <gmock/gmock.h>

namespace trainctl::tokenizer {
namespace {

constexpr const char* kMark = "\xEF\xBF\xBD";

// The cases are those of the Unicode standard, section 3.9 (tables 3-8 to 3-11).
TEST(Utf8, EachLongestIllFormedPieceBecomesOneMark) {
  const auto marks = [](int n) {
    std::string text;
    for (int i = 0; i < n; ++i) text += kMark;
    return text;
  };
  EXPECT_EQ(RepairUtf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), marks(8) + "A");
  EXPECT_EQ(RepairUtf8("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), marks(8) + "A");
  EXPECT_EQ(RepairUtf8("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), marks(5) + "A" + marks(2) + "B");
  EXPECT_EQ(RepairUtf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), marks(4) + "A");
  EXPECT_EQ(RepairUtf8("x\xE2\x82"), "x" + marks(1));
  const std::string fine("a\0\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\xF4\x8F\xBF\xBF", 15);
  EXPECT_TRUE(IsUtf8(fine));
  EXPECT_EQ(RepairUtf8(fine), fine);
  for (const char* bad : {"\xC3", "\x80", "\xED\xA0\x80", "\xF5\x80\x80\x80", "\xC1\xBF"})
    EXPECT_FALSE(IsUtf8(bad));
}

// From the standard's own examples of normalization (UAX 15, figures 3 to 6).
TEST(Utf8, NormalFormsAreThoseOfTheStandard) {
  EXPECT_EQ(*Normalized("\u212B\u2126", NormalForm::kNfc), "\u00C5\u03A9");
  EXPECT_EQ(*Normalized("\u1E0D\u0307", NormalForm::kNfd), "d\u0323\u0307");
  EXPECT_EQ(*Normalized("\u1E0D\u0307", NormalForm::kNfc), "\u1E0D\u0307");
  EXPECT_EQ(*Normalized("\uFB01", NormalForm::kNfc), "\uFB01");
  EXPECT_EQ(*Normalized("\uFB01", NormalForm::kNfkc), "fi");
  EXPECT_EQ(*Normalized("\u1E9B\u0323", NormalForm::kNfkd), "s\u0323\u0307");
  EXPECT_EQ(*Normalized(std::string("a\0b", 3), NormalForm::kNfkc), std::string("a\0b", 3));
}

// Results match the reference. U+0897 is a mark of class 230 since 16.0; U+105C9 decomposes since then.
TEST(Utf8, WhatUnicode9DoesNotKnowNeitherMovesNorDecomposes) {
  EXPECT_EQ(*Normalized("e\u0897\u0323\u0301", NormalForm::kNfc), "e\u0897\u0323\u0301");
  EXPECT_EQ(*Normalized("e\u0301\u0323\u0897e\u0301", NormalForm::kNfc), "\u1EB9\u0301\u0897\u00E9");
  EXPECT_EQ(*Normalized("\U000105C9\u00E9", NormalForm::kNfd), "\U000105C9e\u0301");
  EXPECT_EQ(*Normalized("\u32FF\u32FE", NormalForm::kNfkc), "\u32FF\u30F2");
}

TEST(Utf8, SpaceIsWhatUnicodeCallsWhiteSpace) {
  EXPECT_EQ(LeadingSpaceBytes(" \u00A0\u3000\u180Ex"), 6U);  // U+180E has not been one since Unicode 6.3
  EXPECT_EQ(TrailingSpaceBytes("x\u200B\u2028\u0085\t"), 6U);
  EXPECT_EQ(TrailingSpaceBytes(" \n "), 3U);
}

}  // namespace
}  // namespace trainctl::tokenizer
