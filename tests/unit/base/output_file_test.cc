#include "base/output_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"

namespace trainctl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const OutputRules kNew;
const OutputRules kForce = {.overwrite = true, .inputs = {}};

class OutputFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = absl::StrCat(::testing::TempDir(), "output_file_test_XXXXXX");
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  std::string Path(absl::string_view name) const { return absl::StrCat(dir_, "/", name); }
  std::string Make(absl::string_view name, absl::string_view contents) const {
    EXPECT_TRUE(WriteFileAtomic(Path(name), contents).ok());
    return Path(name);
  }
  size_t NumEntries() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(dir_), {}));
  }
  static mode_t ModeOf(const std::string& path) {
    struct stat info = {};
    EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
    return info.st_mode;
  }
  // Refused as a mistake on the command line.
  static std::string Refusal(const std::string& path, const OutputRules& rules) {
    const absl::Status status = WriteOutputFile(path, "new", rules);
    EXPECT_EQ(ExitCodeFor(status), ExitCode::kUsage) << path << ": " << status;
    EXPECT_EQ(FindOutput(path, rules).status(), status) << "it is found before any work, in the same words";
    return std::string(status.message());
  }

  std::string dir_;
};

TEST_F(OutputFile, AFileThatExistsIsReplacedOnlyWithForce) {
  ASSERT_TRUE(WriteOutputFile(Path("x"), "first", kNew).ok());
  EXPECT_EQ(*ReadFile(Path("x")), "first");
  EXPECT_THAT(Refusal(Path("x"), kNew), AllOf(HasSubstr(Path("x")), HasSubstr("--force")));
  EXPECT_EQ(*ReadFile(Path("x")), "first");
  ASSERT_TRUE(WriteOutputFile(Path("x"), "second", kForce).ok());
  EXPECT_EQ(*ReadFile(Path("x")), "second");
  EXPECT_EQ(NumEntries(), 1u);  // no temporary name is left
}

TEST_F(OutputFile, AFileThatIsReplacedKeepsItsMode) {
  ASSERT_EQ(::chmod(Make("x", "secret").c_str(), 0600), 0);
  ASSERT_TRUE(WriteOutputFile(Path("x"), "new", kForce).ok());
  EXPECT_EQ(ModeOf(Path("x")) & 07777, 0600u);
}

TEST_F(OutputFile, ALinkStaysAndWhatItLeadsToIsWritten) {
  std::filesystem::create_directory(Path("folder"));
  Make("folder/target", "old");
  std::filesystem::create_symlink("folder/target", Path("link"));
  std::filesystem::create_symlink(Path("link"), Path("link of link"));
  EXPECT_THAT(Refusal(Path("link of link"), kNew), HasSubstr("link of link exists"));
  ASSERT_TRUE(WriteOutputFile(Path("link of link"), "new", kForce).ok());
  EXPECT_TRUE(std::filesystem::is_symlink(Path("link")));
  EXPECT_TRUE(std::filesystem::is_symlink(Path("link of link")));
  EXPECT_EQ(*ReadFile(Path("folder/target")), "new");

  std::filesystem::create_symlink("folder/not yet", Path("dangling"));
  ASSERT_TRUE(WriteOutputFile(Path("dangling"), "new", kNew).ok());
  EXPECT_TRUE(std::filesystem::is_symlink(Path("dangling")));
  EXPECT_EQ(*ReadFile(Path("folder/not yet")), "new");

  std::filesystem::create_symlink(Path("loop"), Path("loop"));
  EXPECT_EQ(ExitCodeFor(WriteOutputFile(Path("loop"), "new", kForce)), ExitCode::kEnvironment);
}

TEST_F(OutputFile, ADeviceIsWrittenToAndStays) {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_GE(terminal, 0);
  ASSERT_EQ(::grantpt(terminal), 0);
  ASSERT_EQ(::unlockpt(terminal), 0);
  const std::string device = ::ptsname(terminal);
  std::filesystem::create_symlink(device, Path("device"));
  ASSERT_TRUE(WriteOutputFile(Path("device"), "text", kNew).ok());
  std::array<char, 16> read = {};
  EXPECT_EQ(::read(terminal, read.data(), read.size()), 4);
  EXPECT_STREQ(read.data(), "text");
  EXPECT_TRUE(std::filesystem::is_symlink(Path("device")));
  EXPECT_TRUE(S_ISCHR(ModeOf(device)));
  ::close(terminal);

  // Not the machine's own where a mistake of ours could replace it.
  const bool is_root = ::geteuid() == 0;
  if (is_root && ::mknod(Path("full").c_str(), S_IFCHR | 0600, makedev(1, 7)) != 0) return;
  if (!is_root) std::filesystem::create_symlink("/dev/full", Path("full"));
  const absl::Status full = WriteOutputFile(Path("full"), "text", kForce);
  EXPECT_EQ(ExitCodeFor(full), ExitCode::kEnvironment);
  EXPECT_THAT(std::string(full.message()), HasSubstr("No space left"));
  EXPECT_TRUE(S_ISCHR(ModeOf(Path("full"))));
}

TEST_F(OutputFile, APipeIsWrittenToWhereItIsRead) {
  ASSERT_EQ(::mkfifo(Path("pipe").c_str(), 0600), 0);
  const absl::Status unread = WriteOutputFile(Path("pipe"), "text", kNew);
  EXPECT_EQ(ExitCodeFor(unread), ExitCode::kEnvironment);
  EXPECT_THAT(std::string(unread.message()), HasSubstr("nobody reads"));
  const int end = ::open(Path("pipe").c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(end, 0);
  // More than a pipe holds: the reader is waited for.
  const std::string text(1 << 20, 'x');
  std::string read;
  std::atomic<bool> is_written = false;
  std::thread writer([&] {
    EXPECT_TRUE(WriteOutputFile(Path("pipe"), text, kNew).ok());
    is_written = true;
  });
  std::array<char, 4096> piece;
  while (true) {
    const bool is_last = is_written;
    const ssize_t count = ::read(end, piece.data(), piece.size());
    if (count > 0) read.append(piece.data(), static_cast<size_t>(count));
    if (count <= 0 && is_last) break;
  }
  writer.join();
  ::close(end);
  EXPECT_EQ(read, text);
  EXPECT_TRUE(S_ISFIFO(ModeOf(Path("pipe"))));
}

TEST_F(OutputFile, WhatTheCallerHasOpenedIsGoneOnWith) {
  const int fd = ::open(Path("log").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::write(fd, "before ", 7), 7);
  ASSERT_TRUE(WriteOutputFile(absl::StrCat("/dev/fd/", fd), "after", kNew).ok());
  ::close(fd);
  EXPECT_EQ(*ReadFile(Path("log")), "before after");
}

TEST_F(OutputFile, WhatIsNoFileIsRefused) {
  EXPECT_THAT(Refusal(dir_, kForce), HasSubstr("is a folder"));
  EXPECT_THAT(Refusal(Path("no such folder/"), kForce), HasSubstr("is a folder"));
  EXPECT_THAT(Refusal("", kForce), HasSubstr("is empty"));
  EXPECT_THAT(Refusal("-", kForce), HasSubstr("/dev/stdout"));
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  ASSERT_LT(Path("s").size(), sizeof(address.sun_path));
  std::memcpy(address.sun_path, Path("s").c_str(), Path("s").size());
  ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_THAT(Refusal(Path("s"), kForce), HasSubstr("is a socket"));
  EXPECT_TRUE(S_ISSOCK(ModeOf(Path("s"))));
  ::close(fd);
  const absl::Status no_folder = FindOutput(Path("no/such/x"), kForce).status();
  EXPECT_EQ(ExitCodeFor(no_folder), ExitCode::kEnvironment);
  EXPECT_THAT(std::string(no_folder.message()), HasSubstr("no/such/x"));
}

TEST_F(OutputFile, AnInputIsNeverAnOutput) {
  const OutputRules rules = {.overwrite = true, .inputs = {Path("absent"), Make("in", "mine")}};
  std::filesystem::create_hard_link(Path("in"), Path("twin"));
  std::filesystem::create_symlink("in", Path("link"));
  std::filesystem::create_directory(Path("folder"));
  for (const char* name : {"in", "twin", "link", "folder/../in"}) {
    EXPECT_THAT(Refusal(Path(name), rules), HasSubstr("an input of this command")) << name;
  }
  EXPECT_EQ(*ReadFile(Path("in")), "mine");
}

TEST_F(OutputFile, TwoNamesOfOneFileAreFoundBeforeItIsThere) {
  std::filesystem::create_symlink("new", Path("link"));
  EXPECT_TRUE(IsSameFile(Path("new"), Path("./new")));
  EXPECT_TRUE(IsSameFile(Path("new"), Path("link")));
  EXPECT_FALSE(IsSameFile(Path("new"), Path("newer")));
}

}  // namespace
}  // namespace trainctl
