// Words are counted the same however the text is packed, cut and shared among threads.
#include "data/count_words.h"

#include <gmock/gmock.h>
#include <zlib.h>

#include <map>

#include "absl/strings/escaping.h"
#include "base/status.h"
#include "tests/unit/data/data_test_util.h"
#include "tests/unit/data/no_more_threads.h"

namespace trainctl::data {
namespace {

using testing::HasSubstr;
using Counts = std::map<std::string, int64_t>;

class CountWordsTest : public DataTest {
 protected:
  static absl::StatusOr<Counts> Count(const CountWordsOptions& options) {
    auto counted = CountWords(options);
    if (!counted.ok()) return counted.status();
    return Counts(counted->words.counts().begin(), counted->words.counts().end());
  }
  static Counts CountFiles(std::vector<std::string> files, int threads = 1, size_t piece_bytes = 1 << 20) {
    CountWordsOptions options;
    options.files = std::move(files);
    options.num_threads = threads;
    options.piece_bytes = piece_bytes;
    const auto counts = Count(options);
    EXPECT_TRUE(counts.ok()) << counts.status();
    return counts.ok() ? *counts : Counts();
  }
  std::string WriteGzip(const std::string& name, const std::string& plain) const {
    gzFile file = gzopen(Path(name).c_str(), "wb");
    EXPECT_EQ(gzwrite(file, plain.data(), static_cast<unsigned>(plain.size())),
              static_cast<int>(plain.size()));
    EXPECT_EQ(gzclose(file), Z_OK);
    return Path(name);
  }
};

TEST_F(CountWordsTest, PackedFilesAreReadAsWhatIsInThem) {
  const Counts expected = {{"one", 2}, {" two", 1}, {"\n", 1}};
  EXPECT_EQ(CountFiles({Write("a.txt", "one two\none")}), expected);
  EXPECT_EQ(CountFiles({WriteGzip("b.txt.gz", "one two\none")}), expected);
  EXPECT_EQ(CountFiles({WriteGzip("c.jsonl.gz", "{\"text\":\"one two\\none\"}\n")}), expected);
  // printf 'one two\none' | zstd -c (1.5.4)
  const std::string zstd = absl::HexStringToBytes("28b52ffd04585900006f6e652074776f0a6f6e65cc3943db");
  EXPECT_EQ(CountFiles({Write("d.txt.zst", zstd)}), expected);
  EXPECT_EQ(CountFiles({WriteGzip("e.txt.gz", "")}), Counts());
}

// Runs of white space before line ends, and a row of characters of two bytes that is longer than any piece.
TEST_F(CountWordsTest, CutsChangeNoWord) {
  std::string text;
  for (int i = 0; i < 3000; ++i) {
    text += "word" + std::to_string(i % 7) + std::string(static_cast<size_t>(i % 5), ' ') +
            std::string(1 + static_cast<size_t>(i % 3), '\n') + (i % 4 == 0 ? "  x" : "y");
  }
  const std::string plain = Write("a.txt", text);
  const Counts whole = CountFiles({plain}, 1, 1 << 20);
  EXPECT_EQ(whole.at("1"), 429);
  for (const size_t piece_bytes : {1, 2, 7, 100}) EXPECT_EQ(CountFiles({plain}, 1, piece_bytes), whole);
  EXPECT_EQ(CountFiles({WriteGzip("a.txt.gz", text)}, 1, 7), whole);

  std::string row = "x";
  for (int i = 0; i < 1000; ++i) row += "\u00E9";
  for (const auto& [word, count] : CountFiles({Write("row.txt", row)}, 1, 2)) {
    EXPECT_EQ(word.find("\uFFFD"), std::string::npos) << word << " " << count;
  }
}

TEST_F(CountWordsTest, NeitherThreadsNorTheOrderOfFilesMatter) {
  std::vector<std::string> files;
  for (int i = 0; i < 9; ++i) {
    files.push_back(Write("f" + std::to_string(i), std::string(static_cast<size_t>(i) * 3, '1') + " a b a"));
  }
  const Counts expected = CountFiles(files, 1);
  EXPECT_EQ(expected.at(" a"), 18);
  EXPECT_EQ(expected.at("111"), 1);
  EXPECT_EQ(CountFiles(files, 4), expected);
  EXPECT_EQ(CountFiles({files.rbegin(), files.rend()}, 3), expected);
  const NoMoreThreads none;
  EXPECT_EQ(CountFiles(files, 4), expected);
}

TEST_F(CountWordsTest, FilesThatAreNotTextAreRefused) {
  CountWordsOptions options;
  options.files = {Write("a.txt", "text"), Write("b.parquet", "")};
  EXPECT_THAT(Count(options).status().message(), HasSubstr("b.parquet is empty"));
  options.files[1] = Write("c.txt", "PAR1....");
  EXPECT_THAT(Count(options).status().message(), HasSubstr("c.txt"));
  options.files[1] = Write("d.jsonl", "{\"text\":\"x\"}\nrubbish\n");
  EXPECT_THAT(Count(options).status().message(), HasSubstr("d.jsonl:2:1"));
  options.files[1] = Path("none.txt");
  EXPECT_EQ(ExitCodeFor(Count(options).status()), ExitCode::kUsage);
}

}  // namespace
}  // namespace trainctl::data
