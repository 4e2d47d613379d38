#include "run/grant.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/files.h"
#include "base/status.h"
#include "run/run_folder.h"

namespace trainctl::run {
namespace {

using testing::HasSubstr;

class GrantTest : public testing::Test {
 protected:
  GrantTest() {
    std::string pattern = testing::TempDir() + "/grantXXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  ~GrantTest() override { (void)RemoveAll(folder_); }
  int64_t Claim() const {
    const auto term = ClaimTerm(folder_);
    EXPECT_TRUE(term.ok()) << term.status();
    return term.value_or(-1);
  }
  bool IsGranted(int64_t term, int64_t generation) const {
    return CheckGrant(folder_, {term, generation}).ok();
  }
  std::string folder_;
};

TEST_F(GrantTest, EachLaunchHasATermOfItsOwnHoweverManyAskAtOnce) {
  constexpr size_t kLaunches = 8;
  std::vector<int64_t> terms(kLaunches);
  std::vector<std::thread> launches;
  for (size_t i = 0; i < kLaunches; ++i) launches.emplace_back([&, i] { terms[i] = Claim(); });
  for (std::thread& launch : launches) launch.join();
  EXPECT_EQ(std::set<int64_t>(terms.begin(), terms.end()).size(), kLaunches);
  EXPECT_EQ(Claim(), static_cast<int64_t>(kLaunches) + 1);
}

TEST_F(GrantTest, WhatWasGrantedIsVoidOnceALaterOneIsOnDisk) {
  EXPECT_TRUE(IsGranted(0, 5)) << "a run of an older build has no terms";
  ASSERT_EQ(Claim(), 1);
  ASSERT_TRUE(RecordGrant(folder_, {1, 1}).ok());
  EXPECT_TRUE(IsGranted(1, 1));
  ASSERT_TRUE(RecordGrant(folder_, {1, 2}).ok());
  EXPECT_FALSE(IsGranted(1, 1));
  EXPECT_TRUE(IsGranted(1, 2));
  ASSERT_EQ(Claim(), 2);
  EXPECT_FALSE(IsGranted(1, 2)) << "before the new launch has started a worker";
  EXPECT_FALSE(IsGranted(1, 9)) << "generations of an older launch count for nothing";
  EXPECT_TRUE(IsGranted(2, 0));
}

TEST_F(GrantTest, AnOlderLaunchRecordsNoGeneration) {
  ASSERT_EQ(Claim(), 1);
  ASSERT_EQ(Claim(), 2);
  const absl::Status status = RecordGrant(folder_, {1, 1});
  EXPECT_EQ(ExitCodeFor(status), ExitCode::kEnvironment);
  EXPECT_THAT(std::string(status.message()), HasSubstr("launch 2 has taken"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("trainctl status"));
  EXPECT_TRUE(IsGranted(2, 0));
}

TEST_F(GrantTest, OtherFilesAndHalfWrittenOnesAreNoTerms) {
  ASSERT_EQ(Claim(), 1);
  ASSERT_TRUE(RecordGrant(folder_, {1, 3}).ok());
  ASSERT_TRUE(AppendFile(folder_ + "/terms/00000009.tmp.77", "4\n").ok());
  ASSERT_TRUE(AppendFile(folder_ + "/terms/.nfs0001", "4\n").ok());
  EXPECT_TRUE(IsGranted(1, 3));
  EXPECT_EQ(Claim(), 2);
}

TEST_F(GrantTest, ATermThatNoLaunchReachesIsRefused) {
  ASSERT_TRUE(MakeDirs(folder_ + "/terms").ok());
  ASSERT_TRUE(WriteFileAtomic(folder_ + "/terms/9223372036854775807", "1\n").ok());
  const absl::Status claimed = ClaimTerm(folder_).status();
  EXPECT_EQ(ExitCodeFor(claimed), ExitCode::kBadData);
  EXPECT_THAT(std::string(claimed.message()),
              HasSubstr("there is no launch with this number; remove the file"));
}

TEST_F(GrantTest, ARunFolderThatHoldsAVoidGrantIsNotWrittenAnyMore) {
  auto run = RunFolder::CreateAt(folder_ + "/run");
  ASSERT_TRUE(run.ok()) << run.status();
  ASSERT_TRUE(run->BeginTerm().ok());
  EXPECT_TRUE(run->CheckInPlace().ok());
  ASSERT_TRUE(run->RecordGeneration(4).ok());
  EXPECT_TRUE(run->CheckInPlace().ok());
  auto reader = RunFolder::CreateAt(folder_ + "/run");
  ASSERT_TRUE(ClaimTerm(folder_ + "/run").ok());
  EXPECT_FALSE(run->CheckInPlace().ok());
  EXPECT_FALSE(run->RecordGeneration(5).ok());
  EXPECT_TRUE(reader->CheckInPlace().ok()) << "it writes by no grant";
}

}  // namespace
}  // namespace trainctl::run
