#include "data/file_stamps.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>

#include "absl/strings/str_format.h"
#include "base/files.h"
#include "base/status.h"
#include "data/data_record.h"
#include "data/fingerprint.h"
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

  void Touch(const std::string& name, int64_t time_s) const {
    const struct timespec times[2] = {{.tv_sec = time_s, .tv_nsec = 0}, {.tv_sec = time_s, .tv_nsec = 0}};
    EXPECT_EQ(::utimensat(AT_FDCWD, Path(name).c_str(), times, 0), 0);
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
      {"a.txt", rewrite, "it was modified"},
      {"set.bin", rewrite, "it was modified"},
      {"set.idx", rewrite, "it was modified"},
      {"tokenizer.json", rewrite, "it was modified"},
      {"b.jsonl",
       [](const std::string& path) { ASSERT_TRUE(WriteFileAtomic(path, "{\"text\":\"y\"}\n").ok()); },
       "it was replaced by another file"},
      {"a.txt", [](const std::string& path) { ASSERT_TRUE(AppendFile(path, "!").ok()); },
       "it had 8 bytes and now has 9"},
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
  Touch("a.txt", 1);
  ASSERT_TRUE(WriteFileAtomic(Path("set.bin"), *ReadFile(Path("set.bin"))).ok());
  const auto touched = stamps->CheckUnchanged();
  ASSERT_TRUE(touched.ok()) << touched.status();
  EXPECT_THAT(*touched, ElementsAre(TouchedFile{Path("a.txt")}, TouchedFile{Path("set.bin")}));
  EXPECT_THAT(*stamps->CheckUnchanged(), testing::IsEmpty());
  // Without a record, the original bytes are unknown.
  auto blind = FileStamps::Take(Config(), "");
  ASSERT_TRUE(blind.ok()) << blind.status();
  Touch("a.txt", 1);
  EXPECT_EQ(ExitCodeFor(blind->CheckUnchanged().status()), ExitCode::kBadData);
}

// A large text is known only by its samples, a prepared dataset by its checksum.
TEST_F(FileStampsTest, ALargeFileIsComparedAsFarAsItIsKnown) {
  constexpr int64_t kBytes = kWholeFileBytes + 1000;
  // The last byte is part of a sample; a byte after the first piece is not.
  const auto set_byte = [&](const std::string& name, int64_t at, char value) {
    const int fd = ::open(Path(name).c_str(), O_WRONLY | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    EXPECT_EQ(::pwrite(fd, &value, 1, at), 1);
    ::close(fd);
    Touch(name, 1);
  };
  recipe::DataConfig config;
  config.train = {Source({Write("a.txt", ""), Write("set.bin", "")})};
  Write("set.idx", "index");
  for (const char* name : {"a.txt", "set.bin"}) ASSERT_EQ(::truncate(Path(name).c_str(), kBytes), 0);
  const auto whole = FingerprintFile(Path("set.bin"));
  ASSERT_TRUE(whole.ok()) << whole.status();
  Write("set.json", absl::StrFormat(R"({"data":{"bytes":%d,"xxh3":"%016x"}})", kBytes, whole->xxh3));
  const auto files = Fingerprint(config);
  ASSERT_TRUE(files.ok()) << files.status();
  auto stamps = FileStamps::Take(config, Write("data.json", FormatDataRecord(*files)));
  ASSERT_TRUE(stamps.ok()) << stamps.status();

  for (const char* name : {"a.txt", "set.bin"}) Touch(name, 2);
  const auto touched = stamps->CheckUnchanged();
  ASSERT_TRUE(touched.ok()) << touched.status();
  EXPECT_THAT(*touched,
              ElementsAre(TouchedFile{Path("a.txt"), /*sampled=*/true}, TouchedFile{Path("set.bin")}));
  set_byte("set.bin", kFingerprintPieceBytes + 1, 'x');
  EXPECT_THAT(std::string(stamps->CheckUnchanged().status().message()),
              HasSubstr("set.bin changed while the run was reading it: it was modified"));
  set_byte("set.bin", kFingerprintPieceBytes + 1, '\0');
  ASSERT_TRUE(stamps->CheckUnchanged().ok());
  set_byte("a.txt", kBytes - 1, 'x');
  EXPECT_THAT(std::string(stamps->CheckUnchanged().status().message()),
              HasSubstr("a.txt changed while the run was reading it: it was modified"));
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
