#include "base/subprocess.h"

#include <gtest/gtest.h>

namespace trainctl {
namespace {

TEST(FindInPath, TakesNamesAndPaths) {
  const std::string shell = FindInPath("sh");
  EXPECT_EQ(shell.front(), '/');
  EXPECT_EQ(FindInPath(shell), shell);
  EXPECT_EQ(FindInPath("no-such-program"), "");
  EXPECT_EQ(FindInPath("/no/such/program"), "");
}

}  // namespace
}  // namespace trainctl
