#include "data/text_markers.h"

#include <gmock/gmock.h>

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
       {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|im_end|>", "<|eot_id|>"}) {
    const std::string path = Write("a.txt", absl::StrCat("a", marker));
    EXPECT_THAT(FindTextMarkers({path}), ElementsAre(TextMarker{marker, 1, path}));
  }
}

TEST_F(TextMarkers, OnlyTheFirstMiBOfTheFirst64FilesIsChecked) {
  const std::string blank(size_t{1} << 20, ' ');
  EXPECT_THAT(FindTextMarkers({Write("behind.txt", blank + "</s>")}), IsEmpty());
  EXPECT_THAT(FindTextMarkers({Write("cut.txt", blank.substr(3) + "</s>")}), IsEmpty());
  EXPECT_EQ(FindTextMarkers({Write("last.txt", blank.substr(4) + "</s>")}).size(), 1u);
  std::vector<std::string> files(64, Write("plain.txt", "x"));
  files.push_back(Write("marked.txt", "</s>"));
  EXPECT_THAT(FindTextMarkers(files), IsEmpty());
  files.erase(files.begin());
  EXPECT_EQ(FindTextMarkers(files).size(), 1u);
}

TEST_F(TextMarkers, PackedFilesAndThoseThatCannotBeReadAreSkipped) {
  const std::string plain = Write("plain.txt", "</s>");
  const std::string gzip = absl::HexStringToBytes("1f8b08") + "</s>";
  const std::string zstd = absl::HexStringToBytes("28b52ffd") + "</s>";
  EXPECT_THAT(FindTextMarkers({Write("a", gzip), Write("b", zstd), Write("c.gz", "</s>"), Path("absent"),
                               Path(""), plain}),
              ElementsAre(TextMarker{"</s>", 1, plain}));
}

TEST_F(TextMarkers, TheNoteSaysWhatAndWhereAndWhatToDo) {
  EXPECT_EQ(FormatTextMarkers({}), "");
  EXPECT_EQ(
      FormatTextMarkers({{"<|endoftext|>", 1234, "d/stories.txt"}}),
      "the text contains <|endoftext|> (1234 times, first in d/stories.txt) in the parts that were checked, "
      "but a text file is one document, and a marker in it does not end one: split the text at the markers "
      "into JSONL with a document per line");
  EXPECT_THAT(FormatTextMarkers({{"</s>", 1, "a"}, {"<eos>", 2, "b"}}),
              HasSubstr("contains </s> (once, in a) and <eos> (2 times, first in b) in the parts"));
  EXPECT_THAT(FormatTextMarkers({{"</s>", 1, "a"}, {"<eos>", 2, "b"}, {"<|im_end|>", 3, "b"}}),
              HasSubstr("</s> (once, in a), <eos> (2 times, first in b) and <|im_end|> (3 times"));
}

}  // namespace
}  // namespace trainctl::data
