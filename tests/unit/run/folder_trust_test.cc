#include "run/folder_trust.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "base/files.h"
#include "base/status.h"

namespace trainctl::run {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr uid_t kSomebodyElse = 54321;

class FolderTrustTest : public testing::Test {
 protected:
  FolderTrustTest() {
    std::string pattern = testing::TempDir() + "/trustXXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    EXPECT_TRUE(WriteFileAtomic(recipe(), "{}").ok());
  }
  ~FolderTrustTest() override { (void)RemoveAll(folder_); }
  std::string recipe() const { return folder_ + "/recipe.json"; }
  std::string Refusal() const {
    const absl::Status status = CheckFolderIsTrusted(folder_);
    EXPECT_EQ(ExitCodeFor(status), status.ok() ? ExitCode::kOk : ExitCode::kUsage);
    return std::string(status.message());
  }
  static bool IsRoot() { return ::geteuid() == 0; }

  std::string folder_;
};

TEST_F(FolderTrustTest, OnesOwnFolderIsTrustedAndSoIsOneThatIsYetToBeMade) {
  EXPECT_EQ(Refusal(), "");
  EXPECT_TRUE(CheckFolderIsTrusted(folder_ + "/new").ok());
}

TEST_F(FolderTrustTest, WhatOthersCanChangeIsNot) {
  ASSERT_EQ(::chmod(folder_.c_str(), 0777), 0);
  EXPECT_THAT(Refusal(),
              AllOf(HasSubstr(folder_ + " can be modified by every user"), HasSubstr("--trust-folder")));
  ASSERT_EQ(::chmod(folder_.c_str(), 0755), 0);
  ASSERT_EQ(::chmod(recipe().c_str(), 0646), 0);
  EXPECT_THAT(Refusal(), HasSubstr("recipe.json can be modified by every user"));
}

TEST_F(FolderTrustTest, WhatBelongsToAnotherUserIsNot) {
  if (!IsRoot()) GTEST_SKIP() << "only root can give a file away";
  ASSERT_EQ(::chown(recipe().c_str(), kSomebodyElse, kSomebodyElse), 0);
  EXPECT_THAT(Refusal(), HasSubstr("recipe.json belongs to user 54321"));
  ASSERT_EQ(::chown(recipe().c_str(), 0, 0), 0);
  ASSERT_EQ(::chown(folder_.c_str(), kSomebodyElse, kSomebodyElse), 0);
  EXPECT_THAT(Refusal(), HasSubstr(" belongs to user 54321, but you are user 0 (root)"));
}

TEST_F(FolderTrustTest, AGroupOfOthersIsNot) {
  if (!IsRoot()) GTEST_SKIP() << "only root can give a file away";
  ASSERT_EQ(::chmod(folder_.c_str(), 0775), 0);
  EXPECT_EQ(Refusal(), "") << "the group that is called like its only user";
  ASSERT_EQ(::chown(folder_.c_str(), 0, kSomebodyElse), 0);
  EXPECT_THAT(Refusal(), HasSubstr("can be modified by group 54321"));
}

}  // namespace
}  // namespace trainctl::run
