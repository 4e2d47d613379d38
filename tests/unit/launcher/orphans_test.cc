#include "launcher/orphans.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "launcher/descent_mark.h"

namespace trainctl::launcher {
namespace {

// A child that waits for a byte, then starts a daemon and ends: the daemon becomes this process's child.
class Starter {
 public:
  explicit Starter(const std::function<void()>& begin = [] {}) {
    EXPECT_EQ(::pipe(go_), 0);
    EXPECT_EQ(::pipe(daemon_), 0);
    pid_ = ::fork();
    if (pid_ != 0) return;
    begin();
    char byte = 0;
    (void)!::read(go_[0], &byte, 1);
    const pid_t daemon = ::fork();
    if (daemon == 0) {
      ::setsid();
      while (true) ::pause();
    }
    (void)!::write(daemon_[1], &daemon, sizeof(daemon));
    ::_exit(0);
  }
  ~Starter() {
    for (const int fd : {go_[0], go_[1], daemon_[0], daemon_[1]}) ::close(fd);
  }
  // The daemon, once the one that started it is gone.
  pid_t Start() {
    pid_t daemon = -1;
    EXPECT_EQ(::write(go_[1], "x", 1), 1);
    EXPECT_EQ(::read(daemon_[0], &daemon, sizeof(daemon)), static_cast<ssize_t>(sizeof(daemon)));
    EXPECT_EQ(::waitpid(pid_, nullptr, 0), pid_);
    return daemon;
  }
  pid_t pid() const { return pid_; }

 private:
  int go_[2];
  int daemon_[2];
  pid_t pid_ = -1;
};

TEST(OrphansTest, WhatAKeeperStartedIsEndedAndADaemonOfTheJobScriptIsNot) {
  const DescentMark& mark = DescentMark::Own();
  Starter script;  // was there before
  Orphans orphans;
  Starter keeper([&] { mark.Put(); });
  const pid_t of_script = script.Start();
  const pid_t of_keeper = keeper.Start();
  EXPECT_FALSE(mark.IsOn(of_script));
  EXPECT_TRUE(mark.IsOn(of_keeper));
  EXPECT_TRUE(orphans.KillAll(absl::Minutes(1)).ok());
  EXPECT_EQ(::kill(of_script, 0), 0);
  EXPECT_NE(::kill(of_keeper, 0), 0) << "it was killed and reaped";
  ::kill(of_script, SIGKILL);
  EXPECT_EQ(::waitpid(of_script, nullptr, 0), of_script);
}

TEST(OrphansTest, ALauncherWithinALauncherHasAMarkOfItsOwn) {
  const DescentMark& mark = DescentMark::Own();
  const pid_t pid = ::fork();
  if (pid == 0) {
    mark.Put();
    // As another program: what Own() returns here was made by the parent.
    rlimit limit;
    ::getrlimit(RLIMIT_RTTIME, &limit);
    const rlimit inner = {limit.rlim_max - 1, limit.rlim_max - 1};
    ::setrlimit(RLIMIT_RTTIME, &inner);
    ::_exit(mark.IsOn(::getpid()) ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0) << "its workers are descendants of the outer one's, too";
}

}  // namespace
}  // namespace trainctl::launcher
