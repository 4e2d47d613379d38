#include "base/lfs_pointer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/json.h"
#include "base/status.h"

namespace trainctl {
namespace {

constexpr char kPointer[] =
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n";

TEST(LfsPointer, EveryVersionOfTheFormatIsRecognized) {
  for (const char* version : {"https://git-lfs.github.com/spec/v1", "https://hawser.github.com/spec/v1",
                              "http://git-media.io/v/2"}) {
    const std::string pointer = absl::StrCat("version ", version, "\noid sha256:00\nsize 1\n");
    EXPECT_TRUE(IsLfsPointer(pointer, static_cast<int64_t>(pointer.size()))) << version;
    EXPECT_TRUE(IsLfsPointer(absl::string_view(pointer).substr(0, kLfsPointerPrefixBytes), 130)) << version;
  }
}

TEST(LfsPointer, OtherTextsAndLargeFilesAreNone) {
  for (const char* text : {"", "version", "version 1\n", "version https://example.com/spec/v1\n",
                           " version https://git-lfs.github.com/spec/v1\n", "{\"version\": 1}"}) {
    EXPECT_TRUE(RefuseLfsPointer(text, "f").ok()) << text;
  }
  EXPECT_TRUE(IsLfsPointer(kPointer, kMaxLfsPointerBytes));
  EXPECT_FALSE(IsLfsPointer(kPointer, kMaxLfsPointerBytes + 1));
}

TEST(LfsPointer, TheErrorNamesTheFileAndTheCommand) {
  const absl::Status status = RefuseLfsPointer(kPointer, "d/model.safetensors");
  EXPECT_EQ(ExitCodeFor(status), ExitCode::kBadData);
  EXPECT_EQ(
      status.message(),
      "d/model.safetensors is a Git LFS pointer, not the file itself; fetch the file with `git lfs pull` in "
      "its repository");
  EXPECT_EQ(ParseJson(kPointer, "d/model.safetensors").status(), status) << "wherever JSON is expected";
}

TEST(LfsPointer, AFileOnDiskIsRefusedAndWhatCannotBeReadIsNot) {
  std::string folder = testing::TempDir() + "/lfs-pointer-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/f";
  ASSERT_TRUE(WriteFileAtomic(path, kPointer).ok());
  EXPECT_EQ(RefuseLfsPointerFile(path), LfsPointerError(path));
  ASSERT_TRUE(WriteFileAtomic(path, kPointer + std::string(kMaxLfsPointerBytes, ' ')).ok());
  EXPECT_TRUE(RefuseLfsPointerFile(path).ok());
  EXPECT_TRUE(RefuseLfsPointerFile(folder).ok());
  EXPECT_TRUE(RefuseLfsPointerFile(folder + "/absent").ok());
  ASSERT_EQ(::mkfifo((folder + "/pipe").c_str(), 0600), 0);
  EXPECT_TRUE(RefuseLfsPointerFile(folder + "/pipe").ok());
  EXPECT_TRUE(RemoveAll(folder).ok());
}

}  // namespace
}  // namespace trainctl
