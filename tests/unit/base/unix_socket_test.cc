#include "base/unix_socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/files.h"
#include "base/status.h"

namespace trainctl {
namespace {

class UnixSocket : public testing::Test {
 protected:
  UnixSocket() { EXPECT_NE(::mkdtemp(folder_.data()), nullptr); }
  ~UnixSocket() override { (void)RemoveAll(folder_); }

  // Connects as a client would.
  static bool Connects(const std::string& path) {
    const absl::StatusOr<std::string> shorter = ShortSocketPath(path);
    EXPECT_TRUE(shorter.ok()) << shorter.status();
    sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
    shorter->copy(address.sun_path, kMaxSocketPathBytes);
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool connects = ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
    ::close(fd);
    return connects;
  }

  std::string folder_ = testing::TempDir() + "/unix-socket-XXXXXX";
};

TEST_F(UnixSocket, APathOfAnyLengthIsBoundAndConnectedTo) {
  const std::string deep = folder_ + "/" + std::string(150, 'x');
  ASSERT_TRUE(MakeDirs(deep).ok());
  for (const std::string& path : {folder_ + "/s", deep + "/s"}) {
    const absl::StatusOr<int> listener = BindPrivateSocket(path);
    ASSERT_TRUE(listener.ok()) << listener.status();
    ASSERT_EQ(::listen(*listener, 1), 0);
    struct stat info;
    ASSERT_EQ(::lstat(path.c_str(), &info), 0);
    EXPECT_TRUE(S_ISSOCK(info.st_mode));
    EXPECT_EQ(info.st_mode & 0777, 0600u);
    EXPECT_TRUE(Connects(path));
    const absl::Status again = BindPrivateSocket(path).status();
    EXPECT_EQ(ExitCodeFor(again), ExitCode::kEnvironment);
    EXPECT_THAT(std::string(again.message()), testing::HasSubstr(path));
    ::close(*listener);
    EXPECT_FALSE(Connects(path));
  }
  EXPECT_EQ(*ShortSocketPath(folder_ + "/s"), folder_ + "/s");
  EXPECT_LE(ShortSocketPath(deep + "/s")->size(), kMaxSocketPathBytes);
}

TEST_F(UnixSocket, AFolderThatWasReplacedIsOpenedAgain) {
  const std::string deep = folder_ + "/" + std::string(150, 'x');
  ASSERT_TRUE(MakeDirs(deep).ok());
  ASSERT_TRUE(ShortSocketPath(deep + "/s").ok());
  std::error_code error;
  std::filesystem::rename(deep, folder_ + "/moved", error);
  ASSERT_FALSE(error);
  EXPECT_EQ(ExitCodeFor(ShortSocketPath(deep + "/s").status()), ExitCode::kEnvironment);
  ASSERT_TRUE(MakeDirs(deep).ok());
  const absl::StatusOr<int> listener = BindPrivateSocket(deep + "/s");
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_TRUE(PathExists(deep + "/s"));
  EXPECT_FALSE(PathExists(folder_ + "/moved/s"));
  ::close(*listener);
}

}  // namespace
}  // namespace trainctl
