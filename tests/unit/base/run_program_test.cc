#include "base/run_program.h"

#include <gmock/gmock.h>

namespace trainctl {
namespace {

using testing::SizeIs;

// More than a pipe holds: a program that reads none of it, or prints more than is kept, is waited for all the
// same.
TEST(RunHandler, LargeInputAndOutputHoldNobody) {
  const std::string input(1 << 20, 'x');
  const auto reader = RunHandler({"/bin/sh", "-c", "wc -c >&2"}, input, absl::Minutes(1));
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(reader->output, "1048576");
  const auto deaf = RunHandler({"/bin/sh", "-c", "head -c 1000000 /dev/zero | tr '\\0' y >&2; exit 5"}, input,
                               absl::Minutes(1), 100);
  ASSERT_TRUE(deaf.ok()) << deaf.status();
  EXPECT_FALSE(deaf->is_late);
  EXPECT_EQ(deaf->exit.code, 5);
  EXPECT_THAT(deaf->output, SizeIs(100));
}

TEST(RunHandler, StdoutIsNotKept) {
  const auto end = RunHandler({"/bin/sh", "-c", "echo out; echo err >&2"}, "", absl::Minutes(1));
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(end->output, "err");
}

}  // namespace
}  // namespace trainctl
