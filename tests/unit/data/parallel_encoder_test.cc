// How much the encoder holds, and what it does when the system gives it no thread.
#include "data/parallel_encoder.h"

#include <gtest/gtest.h>

#include "base/status.h"
#include "tests/unit/data/no_more_threads.h"

namespace trainctl::data {
namespace {

// Each text has one token: its length in MiB.
class LengthTokenizer : public tokenizer::Tokenizer {
 public:
  absl::Status Encode(absl::string_view text, std::vector<int32_t>* ids) const override {
    ids->push_back(static_cast<int32_t>(text.size() >> 20));
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> Decode(absl::Span<const int32_t>, bool) const override { return std::string(); }
  int32_t IdOf(absl::string_view) const override { return -1; }
};

TEST(ParallelEncoder, TextsUnderWayAreBoundedByTheirBytesAndOneAlwaysGoes) {
  const LengthTokenizer tokenizer;
  std::vector<int32_t> taken;
  ParallelEncoder encoder(tokenizer, -1, 4, [&](absl::Span<const int32_t> tokens) {
    taken.insert(taken.end(), tokens.begin(), tokens.end());
    return absl::OkStatus();
  });
  const size_t too_large = ParallelEncoder::kMaxBytesUnderWay + (size_t{1} << 20);
  for (size_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(encoder.Add(std::string(too_large, 'a')).ok());
    EXPECT_EQ(taken.size(), i) << "all but the last are out";
  }
  taken.clear();
  // 40 MiB and 40 MiB are too much together, the first of them then waits no longer.
  ASSERT_TRUE(encoder.Add(std::string(size_t{40} << 20, 'b')).ok());
  EXPECT_EQ(taken, (std::vector<int32_t>{65}));
  ASSERT_TRUE(encoder.Add(std::string(size_t{20} << 20, 'c')).ok());
  EXPECT_EQ(taken.size(), 1U);
  ASSERT_TRUE(encoder.Add(std::string(size_t{20} << 20, 'd')).ok());
  EXPECT_EQ(taken, (std::vector<int32_t>{65, 40}));
  ASSERT_TRUE(encoder.Finish().ok());
  EXPECT_EQ(taken, (std::vector<int32_t>{65, 40, 20, 20}));
}

TEST(ParallelEncoder, WithoutAnyThreadItSaysSo) {
  const LengthTokenizer tokenizer;
  const NoMoreThreads none;
  ParallelEncoder encoder(tokenizer, -1, 2, [](absl::Span<const int32_t>) { return absl::OkStatus(); });
  const absl::Status status = encoder.Add("text");
  EXPECT_EQ(ExitCodeFor(status), ExitCode::kEnvironment) << status;
}

}  // namespace
}  // namespace trainctl::data
