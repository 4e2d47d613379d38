// Progress as text, on a clock that the test moves.
#include "telemetry/byte_progress.h"

#include <gmock/gmock.h>

#include <vector>

namespace trainctl::telemetry {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

TEST(ByteProgress, OnATerminalALineHasBarBytesRateAndTimeLeft) {
  FakeClock clock;
  ByteProgress progress(clock, true);
  // What was done before the first call is no work of this time: (512 - 256) MiB in 10 s, as much to go.
  EXPECT_EQ(progress.Update(256 * kMiB, 768 * kMiB), "");
  EXPECT_EQ(progress.Update(300 * kMiB, 768 * kMiB), "") << "a line at a time";
  clock.Advance(absl::Seconds(10));
  EXPECT_EQ(progress.Update(512 * kMiB, 768 * kMiB),
            "[##########......] 512.00 MiB of 768.00 MiB 26.8 MB/s 0:10 left");
  EXPECT_EQ(progress.Update(513 * kMiB, 768 * kMiB), "") << "not at every call";
}

TEST(ByteProgress, ElsewhereLinesComeNowAndThen) {
  FakeClock clock;
  ByteProgress progress(clock, false);
  std::vector<int> seconds_of_lines;
  std::string last;
  for (int second = 0; second < 1500; ++second) {
    const std::string line = progress.Update(second * kMiB, 2000 * kMiB);
    if (!line.empty()) seconds_of_lines.push_back(second);
    if (!line.empty()) last = line;
    clock.Advance(absl::Seconds(1));
  }
  EXPECT_EQ(seconds_of_lines, (std::vector<int>{5, 15, 35, 75, 155, 315, 615, 915, 1215}));
  EXPECT_EQ(last, "60 %, 1.19 GiB of 1.95 GiB 1.0 MB/s 13:05 left");
}

TEST(ByteProgress, NothingAndMoreThanAllAreNoTrouble) {
  FakeClock clock;
  ByteProgress progress(clock, true);
  EXPECT_EQ(progress.Update(0, 0), "");
  clock.Advance(absl::Seconds(1));
  EXPECT_EQ(progress.Update(0, 0), "[................] 0 B of 0 B 0.0 MB/s");
  clock.Advance(absl::Seconds(1));
  EXPECT_EQ(progress.Update(200, 100), "[################] 200 B of 100 B 0.0 MB/s 0:00 left");
  EXPECT_EQ(TimeLeft(absl::Seconds(3754)), "1:02:34");
}

}  // namespace
}  // namespace trainctl::telemetry
