#include "run/opened_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/mount.h>

#include <climits>
#include <cstdio>
#include <string>

#include "base/files.h"
#include "base/status.h"
#include "run/run_folder.h"

namespace trainctl::run {
namespace {

using ::testing::HasSubstr;

class OpenedFolderTest : public ::testing::Test {
 protected:
  OpenedFolderTest() {
    std::string folder = "/tmp/trainctl-opened-XXXXXX";
    EXPECT_NE(::mkdtemp(folder.data()), nullptr);
    char resolved[PATH_MAX];
    EXPECT_NE(::realpath(folder.c_str(), resolved), nullptr);
    root_ = resolved;
    EXPECT_TRUE(MakeDirs(path()).ok());
  }
  ~OpenedFolderTest() override { (void)RemoveAll(root_); }

  std::string path() const { return root_ + "/a/run"; }
  OpenedFolder Open() const { return *OpenedFolder::Open(path()); }
  // What is said of a folder that is not in its place.
  static std::string Words(const OpenedFolder& folder) {
    const absl::Status status = folder.CheckInPlace();
    EXPECT_EQ(ExitCodeFor(status), ExitCode::kEnvironment) << status;
    return std::string(status.message());
  }

  std::string root_;
};

TEST_F(OpenedFolderTest, StaysInPlaceWhateverIsWrittenIntoIt) {
  const OpenedFolder folder = Open();
  ASSERT_TRUE(WriteFileAtomic(path() + "/file", "text").ok());
  ASSERT_TRUE(MakeDirs(path() + "/checkpoints").ok());
  EXPECT_TRUE(folder.CheckInPlace().ok());
}

TEST_F(OpenedFolderTest, OneThatWasRenamedIsFound) {
  const OpenedFolder folder = Open();
  ASSERT_EQ(::rename((root_ + "/a").c_str(), (root_ + "/b").c_str()), 0);
  EXPECT_THAT(Words(folder), HasSubstr(path() + " is gone"));
  EXPECT_THAT(Words(folder), HasSubstr("was moved to " + root_ + "/b/run"));
  EXPECT_THAT(Words(folder),
              HasSubstr("no checkpoint yet; continue with: trainctl resume " + root_ + "/b/run"));
  ASSERT_EQ(::rename((root_ + "/b").c_str(), (root_ + "/a").c_str()), 0);
  EXPECT_TRUE(folder.CheckInPlace().ok());
}

TEST_F(OpenedFolderTest, AnotherOneInItsPlaceIsNotTakenForIt) {
  const OpenedFolder folder = Open();
  ASSERT_EQ(::rename(path().c_str(), (root_ + "/moved").c_str()), 0);
  ASSERT_TRUE(MakeDirs(path()).ok());
  EXPECT_THAT(Words(folder), HasSubstr("was replaced by a different folder"));
  EXPECT_THAT(Words(folder), HasSubstr("was moved to " + root_ + "/moved"));
}

// The number of a removed inode is given away at once on many file systems, unless somebody has it open.
TEST_F(OpenedFolderTest, OneThatWasRemovedAndMadeAgainIsAnother) {
  for (const bool again : {false, true}) {
    const OpenedFolder folder = Open();
    ASSERT_TRUE(RemoveAll(path()).ok());
    if (again) {
      ASSERT_TRUE(MakeDirs(path()).ok());
    }
    EXPECT_THAT(Words(folder), HasSubstr("it was removed"));
    ASSERT_TRUE(MakeDirs(path()).ok());
  }
}

TEST_F(OpenedFolderTest, OneWhoseFileSystemWasUnmountedIsNamed) {
  if (::mount("none", path().c_str(), "tmpfs", 0, nullptr) != 0)
    GTEST_SKIP() << "nothing can be mounted here";
  ASSERT_TRUE(MakeDirs(path() + "/one").ok());
  const OpenedFolder folder = *OpenedFolder::Open(path() + "/one");
  const OpenedFolder mount_point = Open();
  EXPECT_TRUE(folder.CheckInPlace().ok());
  ASSERT_EQ(::umount2(path().c_str(), MNT_DETACH), 0);
  for (const OpenedFolder* one : {&folder, &mount_point})
    EXPECT_THAT(Words(*one), HasSubstr("was unmounted"));
}

TEST_F(OpenedFolderTest, ARunDoesNotTakeAwayTheSocketOfTheOneInItsPlace) {
  const auto run = RunFolder::CreateAt(path());
  ASSERT_TRUE(run.ok());
  const std::string socket = *run->MakeSocketPath();
  ASSERT_TRUE(RemoveAll(path()).ok());
  ASSERT_TRUE(MakeDirs(path()).ok());
  ASSERT_TRUE(WriteFileAtomic(socket, "").ok());
  run->RemoveSocket(socket);
  EXPECT_TRUE(PathExists(socket));
}

}  // namespace
}  // namespace trainctl::run
