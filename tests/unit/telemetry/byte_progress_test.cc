// Progress as text, on a clock that the test moves.
#include "telemetry/byte_progress.h"

#include <gmock/gmock.h>

#include <vector>

#include "telemetry/step_pace.h"

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
  EXPECT_EQ(progress.Update(0, 0), "0 B 0.0 MB/s");
  clock.Advance(absl::Seconds(1));
  EXPECT_EQ(progress.Update(30 * kMiB, 0), "30.00 MiB 15.7 MB/s") << "how much a pipe will give is unknown";
  clock.Advance(absl::Seconds(1));
  EXPECT_EQ(progress.Update(200, 100), "[################] 200 B of 100 B 0.0 MB/s 0:00 left");
  EXPECT_EQ(TimeLeft(absl::Seconds(3754)), "1:02:34");
}

// A step in 2 s, and every tenth with an evaluation in 12 s.
TEST(StepPace, TimeLeftCountsWhatComesBetweenSteps) {
  StepPace pace;
  EXPECT_FALSE(pace.TimeLeft(100).has_value());
  absl::Time now = absl::FromUnixSeconds(1000);
  for (int64_t step = 1; step <= 50; ++step) {
    now += absl::Seconds(step % 10 == 0 ? 12 : 2);
    pace.Add({.step = step, .done = now, .tokens_per_second = 100.0 + static_cast<double>(step)});
    EXPECT_EQ(pace.TimeLeft(100).has_value(), step > 1);
  }
  const absl::Duration each = absl::Seconds(44 * 2 + 5 * 12) / 49;
  EXPECT_EQ(pace.PerStep(), each);
  EXPECT_EQ(pace.TimeLeft(100), 50 * each);
  EXPECT_EQ(pace.TimeLeft(10), absl::ZeroDuration());
  EXPECT_EQ(pace.TokensPerSecond(), 141);  // of 131 to 150, the upper of the two in the middle
}

TEST(StepPace, WorkersThatBeginAgainHaveAPaceOfTheirOwn) {
  StepPace pace;
  pace.Add({.step = 10, .done = absl::FromUnixSeconds(0)});
  pace.Add({.step = 20, .done = absl::FromUnixSeconds(10)});
  pace.Add({.step = 16, .done = absl::FromUnixSeconds(500)});
  EXPECT_FALSE(pace.PerStep().has_value());
  pace.Add({.step = 18, .done = absl::FromUnixSeconds(506)});
  EXPECT_EQ(pace.PerStep(), absl::Seconds(3));
}

}  // namespace
}  // namespace trainctl::telemetry
