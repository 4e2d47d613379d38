#include "base/process_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "base/status.h"

namespace trainctl {
namespace {

using ::testing::HasSubstr;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsSanitized = true;
#elif defined(__has_feature)
constexpr bool kIsSanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool kIsSanitized = false;
#endif

TEST(ProcessLimits, ThoseThatAreSetAreNamedAsUlimitNamesThem) {
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 3 << 20;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &low), 0);
  EXPECT_THAT(LimitsText(), HasSubstr("ulimit -f: 3.00 MiB"));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
}

// Sets a soft limit of this process while it exists.
class LowLimit {
 public:
  LowLimit(__rlimit_resource resource, int64_t value) : resource_(resource) {
    EXPECT_EQ(::getrlimit(resource, &before_), 0);
    const rlimit low = {static_cast<rlim_t>(value), before_.rlim_max};
    EXPECT_EQ(::setrlimit(resource, &low), 0);
  }
  ~LowLimit() { EXPECT_EQ(::setrlimit(resource_, &before_), 0); }
  LowLimit(const LowLimit&) = delete;
  LowLimit& operator=(const LowLimit&) = delete;

 private:
  const __rlimit_resource resource_;
  rlimit before_;
};

// Its code, and its message.
void ExpectRefused(const absl::Status& status, const std::vector<std::string>& texts) {
  EXPECT_EQ(ExitCodeFor(status), ExitCode::kEnvironment) << status;
  for (const std::string& text : texts) EXPECT_THAT(std::string(status.message()), HasSubstr(text));
}

TEST(ProcessLimits, ALimitThatAWorkerCannotStartWithIsNamed) {
  if (kIsSanitized) GTEST_SKIP() << "the sanitizer needs more memory than that";
  EXPECT_TRUE(CheckWorkerLimits().ok());
  {
    const LowLimit low(RLIMIT_AS, int64_t{700} << 20);
    ExpectRefused(CheckWorkerLimits(), {"ulimit -v: 700.00 MiB; each worker needs more than 1.50 GiB",
                                        "Raise the limit: ulimit -v unlimited"});
  }
  {
    const LowLimit low(RLIMIT_DATA, int64_t{50} << 20);
    ExpectRefused(CheckWorkerLimits(), {"ulimit -d: 50.00 MiB; each worker needs more than 176.00 MiB"});
  }
  const LowLimit low(RLIMIT_STACK, 64 << 10);
  ExpectRefused(CheckWorkerLimits(), {"ulimit -s: 64.00 KiB; each worker needs more than 256.00 KiB"});
}

TEST(ProcessLimits, ResourcesThatTheSystemRefusesAreNamedBeforeTheyAreNeeded) {
  if (kIsSanitized) GTEST_SKIP() << "the sanitizer needs more memory than that";
  const ResourceNeeds needs = {.num_threads = 16, .num_files = 40, .bytes = int64_t{32} << 20};
  EXPECT_TRUE(TryResources(needs, "the launcher").ok());
  {
    const LowLimit low(RLIMIT_NOFILE, 12);
    ExpectRefused(TryResources(needs, "the launcher"),
                  {"the launcher needs 40 more open files, but the system allows only ", "ulimit -n: 12",
                   "Raise the limit: ulimit -n 4096"});
  }
  {
    const LowLimit low(RLIMIT_DATA, int64_t{100} << 20);
    ExpectRefused(TryResources({.num_threads = 64}, "gRPC"),
                  {"gRPC needs 64 more threads", "ulimit -d: 100.00 MiB"});
  }
  {
    const LowLimit low(RLIMIT_DATA, int64_t{512} << 20);
    ExpectRefused(TryResources({.bytes = int64_t{1} << 30}, "gRPC"),
                  {"no 1.00 GiB for gRPC (", "ulimit -d: 512.00 MiB"});
  }
  {
    const LowLimit low(RLIMIT_STACK, 64 << 10);
    ExpectRefused(TryResources(needs, "gRPC"), {"ulimit -s: 64.00 KiB; gRPC needs more than 256.00 KiB"});
  }
  EXPECT_TRUE(TryResources(needs, "the launcher").ok()) << "all that was tried is given back";
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
