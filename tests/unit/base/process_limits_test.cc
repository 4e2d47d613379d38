#include "base/process_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <new>
#include <stdexcept>
#include <string>
#include <system_error>

#include "base/status.h"

namespace trainctl {
namespace {

using ::testing::HasSubstr;

TEST(ProcessLimits, ThoseThatAreSetAreNamedAsUlimitNamesThem) {
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 3 << 20;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &low), 0);
  EXPECT_THAT(LimitsText(), HasSubstr("ulimit -f: 3.00 MiB"));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
}

TEST(ProcessLimits, WhatTheSystemRefusesIsAnErrorOfTheEnvironment) {
  const auto memory = RefusedResource(std::bad_alloc());
  ASSERT_TRUE(memory.has_value());
  EXPECT_EQ(ExitCodeFor(*memory), ExitCode::kEnvironment);
  EXPECT_THAT(std::string(memory->message()), HasSubstr("no more memory (" + LimitsText() + ")"));
  const auto thread =
      RefusedResource(std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again)));
  ASSERT_TRUE(thread.has_value());
  EXPECT_EQ(ExitCodeFor(*thread), ExitCode::kEnvironment);
  EXPECT_THAT(std::string(thread->message()), HasSubstr("Resource temporarily unavailable"));
  EXPECT_FALSE(RefusedResource(std::runtime_error("something else")).has_value());
}

}  // namespace
}  // namespace trainctl
