#include "base/status.h"

#include <gtest/gtest.h>

namespace trainctl {
namespace {

// The numbers are the contract of style and README; they may not move.
TEST(Status, EachKindOfFailureHasItsExitCode) {
  EXPECT_EQ(static_cast<int>(ExitCodeFor(absl::OkStatus())), 0);
  EXPECT_EQ(static_cast<int>(ExitCodeFor(InternalError("x"))), 1);
  EXPECT_EQ(static_cast<int>(ExitCodeFor(UsageError("x"))), 2);
  EXPECT_EQ(static_cast<int>(ExitCodeFor(InfeasibleError("x"))), 3);
  EXPECT_EQ(static_cast<int>(ExitCodeFor(WorkerError("x"))), 4);
  EXPECT_EQ(static_cast<int>(ExitCodeFor(EnvironmentError("x"))), 5);
  EXPECT_EQ(static_cast<int>(ExitCodeFor(BadDataError("x"))), 6);
  EXPECT_EQ(static_cast<int>(ExitCodeFor(CheckFailedError("x"))), 7);
  EXPECT_EQ(static_cast<int>(ExitCodeFor(absl::UnknownError("x"))), 1);
  EXPECT_EQ(static_cast<int>(ExitCode::kStoppedResumable), 75);
  EXPECT_EQ(static_cast<int>(ExitCode::kStoppedUnsaved), 130);
}

TEST(Status, AnnotateKeepsTheKind) {
  const absl::Status status = Annotate(BadDataError("torn"), "while reading x");
  EXPECT_EQ(ExitCodeFor(status), ExitCode::kBadData);
  EXPECT_EQ(status.message(), "while reading x: torn");
  EXPECT_TRUE(Annotate(absl::OkStatus(), "x").ok());
}

absl::StatusOr<int> Half(int number) {
  if (number % 2 != 0) return UsageError("odd");
  return number / 2;
}

absl::StatusOr<int> Quarter(int number) {
  TRAINCTL_ASSIGN_OR_RETURN(const int half, Half(number));
  TRAINCTL_RETURN_IF_ERROR(Half(half).status());
  return half / 2;
}

TEST(Status, TheMacrosReturnTheFirstFailure) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_EQ(Quarter(7).status().message(), "odd");
  EXPECT_EQ(Quarter(6).status().message(), "odd");
}

TEST(StatusDeathTest, ACheckNamesItsPlaceExpressionAndValues) {
  EXPECT_DEATH(TRAINCTL_CHECK(1 + 1 == 3), "internal error at .*status_test.cc:[0-9]+: 1 \\+ 1 == 3");
  EXPECT_DEATH(TRAINCTL_CHECK_MSG(false, "rank ", 3), "false rank 3");
}

}  // namespace
}  // namespace trainctl
