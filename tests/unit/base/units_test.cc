#include "base/units.h"

#include <gtest/gtest.h>

#include "base/status.h"

namespace trainctl {
namespace {

template <typename T>
std::string ErrorOf(const absl::StatusOr<T>& result) {
  if (result.ok()) return "OK";
  EXPECT_EQ(ExitCodeFor(result.status()), ExitCode::kUsage);
  return std::string(result.status().message());
}

TEST(Units, CountsAreDecimal) {
  EXPECT_EQ(*ParseCount("10000"), 10000);
  EXPECT_EQ(*ParseCount("10_000"), 10000);
  EXPECT_EQ(*ParseCount("10K"), 10000);
  EXPECT_EQ(*ParseCount("2.5M"), 2500000);
  EXPECT_EQ(*ParseCount("100B"), 100000000000);
  EXPECT_EQ(*ParseCount("1T"), 1000000000000);
  EXPECT_EQ(*ParseCount("3 M"), 3000000);
  EXPECT_EQ(*ParseCount("0"), 0);
  EXPECT_EQ(*ParseCount("9223372036854775807"), INT64_MAX);
}

// In doubles 1.001 * 1000 is 1000.9999999999999, and 2^53 + 1 is no double at all.
TEST(Units, CountsAreExact) {
  EXPECT_EQ(*ParseCount("1.001K"), 1001);
  EXPECT_EQ(*ParseCount("1.10K"), 1100);
  EXPECT_EQ(*ParseCount("1.0"), 1);
  EXPECT_EQ(*ParseCount("1.00000000000000000000000000000000000000000M"), 1000000);
  EXPECT_EQ(*ParseCount("9007199.254740993B"), 9007199254740993);
}

TEST(Units, CountsMustComeOutWhole) {
  EXPECT_EQ(ErrorOf(ParseCount("1.0005K")), "'1.0005K' is not a whole number");
  EXPECT_EQ(ErrorOf(ParseCount("0.5")), "'0.5' is not a whole number");
  EXPECT_EQ(ErrorOf(ParseCount("0.0000000000000000000000001K")),
            "'0.0000000000000000000000001K' is not a whole number");
}

TEST(Units, NonsenseIsNoCount) {
  for (const char* text : {"", "K", "-5", "+5", "1.2.3", "1e6", "5k", "5KK", "_5", "5_", "5__0", ".5", "5.",
                           "5._0", "0x10", "nan", "inf", "5 5", "٣"}) {
    EXPECT_EQ(ErrorOf(ParseCount(text)),
              absl::StrCat("'", text, "' is not a count, such as \"2M\" or \"100B\""));
  }
}

TEST(Units, CountsThatDoNotFitAreOutOfRange) {
  for (const char* text : {"9223372036854775808", "9223373T", "99999999999999999999999999999999999999999999",
                           "10000000000000000000000000T"}) {
    EXPECT_EQ(ErrorOf(ParseCount(text)), absl::StrCat("'", text, "' is out of range"));
  }
}

TEST(Units, BytesNeedAUnit) {
  EXPECT_EQ(*ParseBytes("512KiB"), 512 * 1024);
  EXPECT_EQ(*ParseBytes("80GB"), 80000000000);
  EXPECT_EQ(*ParseBytes("1.5GiB"), 1610612736);
  EXPECT_EQ(*ParseBytes("1234.567KB"), 1234567);
  EXPECT_EQ(*ParseBytes("2TiB"), int64_t{1} << 41);
  for (const char* text : {"80", "80B", "GB", "80 gb", "80G"}) {
    EXPECT_EQ(ErrorOf(ParseBytes(text)),
              absl::StrCat("'", text, "' is not a size with a unit, such as \"80GB\" or \"512MiB\""));
  }
  EXPECT_EQ(ErrorOf(ParseBytes("0.1KiB")), "'0.1KiB' is not a whole number");
}

TEST(Units, DurationsNeedAUnit) {
  EXPECT_EQ(*ParseDuration("250ms"), absl::Milliseconds(250));
  EXPECT_EQ(*ParseDuration("3s"), absl::Seconds(3));
  EXPECT_EQ(*ParseDuration("0.1s"), absl::Milliseconds(100));
  EXPECT_EQ(*ParseDuration("30m"), absl::Minutes(30));
  EXPECT_EQ(*ParseDuration("1.5h"), absl::Minutes(90));
  for (const char* text : {"3", "s", "3 sec", "-3s", "3d"}) {
    EXPECT_EQ(ErrorOf(ParseDuration(text)),
              absl::StrCat("'", text, "' is not a duration with a unit (ms, s, m or h), such as \"30m\""));
  }
  EXPECT_EQ(ErrorOf(ParseDuration("9999999999h")), "'9999999999h' is out of range");
}

TEST(Units, FormatsForPeople) {
  EXPECT_EQ(FormatBytes(812), "812 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1610612736), "1.50 GiB");
  EXPECT_EQ(FormatBytes(-2048), "-2.00 KiB");
  EXPECT_EQ(FormatCount(512), "512");
  EXPECT_EQ(FormatCount(8030261248), "8.03B");
  EXPECT_EQ(FormatCount(25200000), "25.2M");
  EXPECT_EQ(FormatNumberOf(0, "file"), "0 files");
  EXPECT_EQ(FormatNumberOf(1, "file"), "1 file");
  EXPECT_EQ(FormatNumberOf(1200, "file"), "1200 files");
}

}  // namespace
}  // namespace trainctl
