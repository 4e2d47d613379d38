#include "data/token_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "data/document_set.h"
#include "tests/unit/data/data_test_util.h"

namespace trainctl::data {
namespace {

struct Piece {
  std::vector<int32_t> tokens;
  std::vector<uint8_t> learn;
  std::vector<uint8_t> starts;
};

Piece Read(const TokenStream& stream, int64_t position, int64_t count) {
  const size_t size = static_cast<size_t>(count);
  // Filled with what Read must overwrite.
  Piece piece{std::vector<int32_t>(size, -7), std::vector<uint8_t>(size, 7), std::vector<uint8_t>(size, 7)};
  const absl::Status status =
      stream.Read(position, count, {piece.tokens.data(), piece.learn.data(), piece.starts.data()});
  EXPECT_TRUE(status.ok()) << status;
  return piece;
}

class TokenStreamTest : public DataTest {
 protected:
  // Enough documents for several blocks of the epoch's table; lengths 0 to 6.
  TokenStreamTest() {
    for (int d = 0; d < 300; ++d) lengths_.push_back(d * d % 7);
  }
  std::unique_ptr<TokenStream> Open(ShuffleKey key) {
    auto store = OpenDocuments(Source({WriteTagged("a", lengths_)}), 1 << 30);
    EXPECT_TRUE(store.ok()) << store.status();
    auto split = SplitDocuments(*std::move(store), 0, 0, 0, "a");
    EXPECT_TRUE(split.ok()) << split.status();
    return std::make_unique<TokenStream>(std::move(split->train), std::move(key));
  }
  // The order of the documents in an epoch, after checking that each is whole.
  std::vector<int> DocumentsOf(const TokenStream& stream, int64_t epoch) {
    const Piece piece = Read(stream, epoch * stream.epoch_tokens(), stream.epoch_tokens());
    std::vector<int> order;
    for (size_t i = 0; i < piece.tokens.size(); ++i) {
      const int document = piece.tokens[i] / 1000, position = piece.tokens[i] % 1000;
      EXPECT_EQ(piece.starts[i], position == 0 ? 1 : 0);
      EXPECT_EQ(piece.learn[i], 1);
      if (position == 0) {
        order.push_back(document);
      } else {
        EXPECT_EQ(piece.tokens[i], piece.tokens[i - 1] + 1);
      }
      if (i + 1 == piece.tokens.size() || piece.tokens[i + 1] % 1000 == 0) {
        EXPECT_EQ(position, lengths_[static_cast<size_t>(document)] - 1);
      }
    }
    return order;
  }
  std::vector<int> lengths_;
};

TEST_F(TokenStreamTest, WithoutShufflingTheDocumentsKeepTheirOrder) {
  const auto stream = Open({});
  std::vector<int> expected;
  for (int d = 0; d < 300; ++d) {
    if (lengths_[static_cast<size_t>(d)] > 0) expected.push_back(d);
  }
  EXPECT_EQ(DocumentsOf(*stream, 0), expected);
  EXPECT_EQ(DocumentsOf(*stream, 123456789), expected);
}

TEST_F(TokenStreamTest, EveryEpochSeedAndSourceHasAnOrderOfItsOwn) {
  std::set<std::vector<int>> orders;
  std::vector<int> all;
  for (const auto& [seed, source] :
       std::vector<std::pair<uint64_t, const char*>>{{1, "a"}, {2, "a"}, {1, "b"}}) {
    const auto stream = Open({true, seed, source});
    for (int64_t epoch = 0; epoch < 8; ++epoch) {
      std::vector<int> order = DocumentsOf(*stream, epoch);
      orders.insert(order);
      std::sort(order.begin(), order.end());
      if (all.empty()) all = order;
      EXPECT_EQ(order, all) << "every document once";
    }
  }
  EXPECT_EQ(orders.size(), 24u);
}

TEST_F(TokenStreamTest, AnyPositionIsReadTheSameAloneAndWithinALongRead) {
  const auto stream = Open({true, 5, "a"});
  const int64_t total = 3 * stream->epoch_tokens();
  const Piece whole = Read(*stream, 0, total);
  const auto other = Open({true, 5, "a"});
  for (int64_t position = total - 1; position >= 0; --position) {  // backwards: nothing read before helps
    const int64_t count = std::min<int64_t>(1 + position % 9, total - position);
    const Piece piece = Read(*other, position, count);
    const auto at = static_cast<ptrdiff_t>(position);
    ASSERT_TRUE(std::equal(piece.tokens.begin(), piece.tokens.end(), whole.tokens.begin() + at)) << position;
    ASSERT_TRUE(std::equal(piece.starts.begin(), piece.starts.end(), whole.starts.begin() + at)) << position;
  }
}

TEST_F(TokenStreamTest, MoreEpochsThanAreKeptCanBeReadInAnyOrder) {
  const auto stream = Open({true, 5, "a"});
  std::vector<std::vector<int>> orders;
  for (int64_t epoch = 0; epoch < 10; ++epoch) orders.push_back(DocumentsOf(*stream, epoch));
  for (int64_t epoch = 9; epoch >= 0; --epoch) {
    EXPECT_EQ(DocumentsOf(*stream, epoch), orders[static_cast<size_t>(epoch)]);
  }
}

}  // namespace
}  // namespace trainctl::data
