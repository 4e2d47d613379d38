#include "data/file_stamps.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>

#include "base/files.h"
#include "base/status.h"
#include "data/data_record.h"
#include "tests/unit/data/data_test_util.h"

namespace trainctl::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FileStampsTest : public DataTest {
 protected:
  recipe::DataConfig Config() const {
    recipe::DataConfig config;
    config.tokenizer = WriteTokenizer("tokenizer.json");
    config.train = {Source({Write("a.txt", "one text"), WriteTagged("set", {3, 4})})};
    config.eval = {Source({Path("a.txt"), Write("b.jsonl", "{\"text\":\"x\"}\n")})};
    return config;
  }

  absl::StatusOr<FileStamps> TakeRecorded() const {
    const recipe::DataConfig config = Config();
    const auto files = Fingerprint(config);
    EXPECT_TRUE(files.ok()) << files.status();
    return FileStamps::Take(config, Write("data.json", FormatDataRecord(*files)));
  }
};

TEST_F(FileStampsTest, EveryFileIsThereOnce) {
  const auto files = DataFiles(Config());
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_THAT(*files, ElementsAre(Path("tokenizer.json"), Path("a.txt"), Path("set.bin"), Path("set.idx"),
                                  Path("b.jsonl")));
}

TEST_F(FileStampsTest, EveryChangeIsNamedWithItsFile) {
  struct Case {
    std::string file;
    std::function<void(const std::string&)> change;
    std::string words;
  };
  const auto rewrite = [](const std::string& path) {
    std::string contents = *ReadFile(path);
    contents.back() ^= 1;
    ASSERT_EQ(::truncate(path.c_str(), 0), 0);
    ASSERT_TRUE(AppendFile(path, contents).ok());
  };
  const std::vector<Case> cases = {
      {"a.txt", rewrite, "it was written to"},
      {"set.bin", rewrite, "it was written to"},
      {"set.idx", rewrite, "it was written to"},
      {"tokenizer.json", rewrite, "it was written to"},
      {"b.jsonl",
       [](const std::string& path) { ASSERT_TRUE(WriteFileAtomic(path, "{\"text\":\"y\"}\n").ok()); },
       "another file was put in its place"},
      {"a.txt", [](const std::string& path) { ASSERT_TRUE(AppendFile(path, "!").ok()); },
       "it had 8 bytes and has 9"},
      {"set.bin", [](const std::string& path) { ASSERT_EQ(::unlink(path.c_str()), 0); }, "no such data file"},
  };
  for (const Case& one : cases) {
    auto stamps = TakeRecorded();
    ASSERT_TRUE(stamps.ok()) << stamps.status();
    EXPECT_TRUE(stamps->CheckUnchanged().ok());
    one.change(Path(one.file));
    const absl::Status status = stamps->CheckUnchanged().status();
    EXPECT_EQ(ExitCodeFor(status), ExitCode::kBadData);
    EXPECT_THAT(std::string(status.message()), HasSubstr(Path(one.file)));
    EXPECT_THAT(std::string(status.message()), HasSubstr(one.words));
  }
}

TEST_F(FileStampsTest, TheSameBytesAreNoChangeAndAreToldOnce) {
  auto stamps = TakeRecorded();
  ASSERT_TRUE(stamps.ok()) << stamps.status();
  const struct timespec past[2] = {{.tv_sec = 1, .tv_nsec = 0}, {.tv_sec = 1, .tv_nsec = 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, Path("a.txt").c_str(), past, 0), 0);
  ASSERT_TRUE(WriteFileAtomic(Path("set.bin"), *ReadFile(Path("set.bin"))).ok());
  const auto touched = stamps->CheckUnchanged();
  ASSERT_TRUE(touched.ok()) << touched.status();
  EXPECT_THAT(*touched, ElementsAre(Path("a.txt"), Path("set.bin")));
  EXPECT_THAT(*stamps->CheckUnchanged(), testing::IsEmpty());
  // Without a record nobody knows the bytes.
  auto blind = FileStamps::Take(Config(), "");
  ASSERT_TRUE(blind.ok()) << blind.status();
  ASSERT_EQ(::utimensat(AT_FDCWD, Path("a.txt").c_str(), past, 0), 0);
  EXPECT_EQ(ExitCodeFor(blind->CheckUnchanged().status()), ExitCode::kBadData);
}

// A large file can have other bytes between the samples of its fingerprint.
TEST_F(FileStampsTest, SamplesDoNotProveTheSameBytes) {
  const recipe::DataConfig config = Config();
  auto files = Fingerprint(config);
  ASSERT_TRUE(files.ok()) << files.status();
  for (FileFingerprint& file : *files) file.sampled = true;
  auto stamps = FileStamps::Take(config, Write("data.json", FormatDataRecord(*files)));
  ASSERT_TRUE(stamps.ok()) << stamps.status();
  EXPECT_TRUE(stamps->CheckUnchanged().ok());
  const struct timespec past[2] = {{.tv_sec = 1, .tv_nsec = 0}, {.tv_sec = 1, .tv_nsec = 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, Path("a.txt").c_str(), past, 0), 0);
  EXPECT_EQ(ExitCodeFor(stamps->CheckUnchanged().status()), ExitCode::kBadData);
}

TEST_F(FileStampsTest, ReadingAndPermissionsAreNoChange) {
  auto stamps = TakeRecorded();
  ASSERT_TRUE(stamps.ok()) << stamps.status();
  ASSERT_TRUE(ReadFile(Path("a.txt")).ok());
  ASSERT_EQ(::chmod(Path("a.txt").c_str(), 0444), 0);
  EXPECT_TRUE(stamps->CheckUnchanged().ok());
}

}  // namespace
}  // namespace trainctl::data
