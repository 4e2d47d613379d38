#include "data/text_markers.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "absl/strings/escaping.h"
#include "tests/unit/data/data_test_util.h"

namespace trainctl::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using TextMarkers = DataTest;

TEST_F(TextMarkers, EachMarkerIsCountedAndItsFirstFileNamed) {
  const std::string a = Write("a.txt", "no marker: <|endoftext, <s>, < /s>, a < b, <");
  const std::string b = Write("b.txt", "One.\n<|endoftext|>\nTwo.\n<|endoftext|>");
  const std::string c = Write("c.txt", "<|endoftext|><eos></s><<eos>");
  EXPECT_THAT(FindTextMarkers({a}), IsEmpty());
  EXPECT_THAT(FindTextMarkers({a, b, c}), ElementsAre(TextMarker{"<|endoftext|>", 3, b},
                                                      TextMarker{"</s>", 1, c}, TextMarker{"<eos>", 2, c}));
}

TEST_F(TextMarkers, EveryKnownMarkerIsFound) {
  for (const char* marker :
       {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|im_end|>", "<|eot_id|>", "<end_of_turn>",
        "<|end|>", "<｜end▁of▁sentence｜>", "<|EOT|>", "<|END_OF_TURN_TOKEN|>", "[EOS]", "<|eom_id|>",
        "<|return|>", "<|end_of_turn|>", "<|eot|>"}) {
    const std::string path = Write("a.txt", absl::StrCat("a", marker));
    EXPECT_THAT(FindTextMarkers({path}), ElementsAre(TextMarker{marker, 1, path}));
    EXPECT_EQ(FindTextMarkers({path}, marker).size(), 1u);
  }
  const std::string own = Write("own.txt", "One.\n~over~\nTwo.\n~over~");
  EXPECT_THAT(FindTextMarkers({own}), IsEmpty());
  EXPECT_THAT(FindTextMarkers({own}, "~over~"), ElementsAre(TextMarker{"~over~", 2, own}));
}

// If only samples of a text are checked, its markers are everywhere or at its end.
TEST_F(TextMarkers, LargeFilesAndManyOfThemAreSampled) {
  const std::string blank(size_t{11} << 17, ' ');
  EXPECT_EQ(FindTextMarkers({Write("end.txt", blank + "</s>")}).size(), 1u);
  std::string stories;
  while (stories.size() < size_t{40} << 20) stories += blank.substr(0, 1000) + "<|endoftext|>";
  const auto found = FindTextMarkers({Write("stories.txt", stories)});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_GT(found[0].count, 900) << "of a MiB";
  EXPECT_LT(found[0].count, 1100);
  std::vector<std::string> files(1000, Write("plain.txt", "x"));
  EXPECT_THAT(FindTextMarkers(files), IsEmpty());
  std::fill(files.begin() + 900, files.end(), Write("marked.txt", "</s>"));
  EXPECT_EQ(FindTextMarkers(files).size(), 1u);
}

TEST_F(TextMarkers, CompressedFilesAreReadAndThoseThatCannotBeReadAreSkipped) {
  const std::string plain = Write("plain.txt", "</s>");
  // printf 'a</s>b</s>' | gzip -n
  const std::string packed = Write(
      "packed.txt.gz", absl::HexStringToBytes("1f8b08000000000000034bb4d12fb64b02110018bd61790a000000"));
  const std::string zstd = absl::HexStringToBytes("28b52ffd") + "</s>";
  EXPECT_THAT(
      FindTextMarkers({Write("b", zstd), Write("c.gz", "</s>"), Path("absent"), Path(""), packed, plain}),
      ElementsAre(TextMarker{"</s>", 3, packed}));
}

TEST_F(TextMarkers, TheNoteSaysWhatAndWhereAndWhatToDo) {
  EXPECT_EQ(FormatTextMarkers({}), "");
  EXPECT_EQ(FormatTextMarkers({{"<|endoftext|>", 1234, "d/stories.txt"}}),
            "the text contains <|endoftext|> (1234 times, first in d/stories.txt) in the parts that were "
            "checked, but a text file is a single document, and markers do not split it; convert the text to "
            "JSONL with one document per line");
  EXPECT_THAT(FormatTextMarkers({{"</s>", 1, "a"}, {"<eos>", 2, "b"}}),
              HasSubstr("contains </s> (once, in a) and <eos> (2 times, first in b) in the parts"));
  EXPECT_THAT(FormatTextMarkers({{"</s>", 1, "a"}, {"<eos>", 2, "b"}, {"<|im_end|>", 3, "b"}}),
              HasSubstr("</s> (once, in a), <eos> (2 times, first in b) and <|im_end|> (3 times"));
}

}  // namespace
}  // namespace trainctl::data
