// Lines, logs and the console.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/notification.h"
#include "base/files.h"
#include "launcher/console.h"
#include "launcher/printable_text.h"
#include "launcher/worker_log.h"

namespace trainctl::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

std::vector<std::string> Split(const std::vector<std::string>& chunks) {
  std::vector<std::string> lines;
  LineSplitter splitter;
  const auto sink = [&](absl::string_view line) { lines.emplace_back(line.data(), line.size()); };
  for (const std::string& chunk : chunks) splitter.Add(chunk, sink);
  splitter.Flush(sink);
  return lines;
}

TEST(LineSplitterTest, LinesDoNotDependOnHowTheBytesArrive) {
  const std::string text = "one\ntwo\r\n\n10%\r20%\r30%\nlast";
  const std::vector<std::string> expected = {"one", "two", "", "30%", "last"};
  EXPECT_EQ(Split({text}), expected);
  std::vector<std::string> bytes;
  for (const char c : text) bytes.emplace_back(1, c);
  EXPECT_EQ(Split(bytes), expected);
}

TEST(LineSplitterTest, AnEndlessLineComesInPiecesOfBoundedSize) {
  const std::string text(3 * LineSplitter::kMaxLineBytes + 5, 'x');
  const std::vector<std::string> lines = Split({text});
  EXPECT_THAT(lines, SizeIs(4));
  EXPECT_EQ(absl::StrJoin(lines, ""), text);
  EXPECT_THAT(Split({std::string(LineSplitter::kMaxLineBytes, 'x') + "\n"}), SizeIs(1));
}

TEST(PrintableTextTest, ValidTextStaysAndTheRestIsReplaced) {
  const std::string valid = "tab\there, \xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80";
  EXPECT_EQ(PrintableText(valid), valid);
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(PrintableText(absl::string_view("\0\x1b\x7f", 3)), r + r + r);
  EXPECT_EQ(PrintableText("\xC0\xAF"), r + r) << "overlong";
  EXPECT_EQ(PrintableText("\xED\xA0\x80"), r + r + r) << "surrogate";
  EXPECT_EQ(PrintableText("\xF4\x90\x80\x80"), r + r + r + r) << "beyond Unicode";
  EXPECT_EQ(PrintableText("\xE2\x82"), r + r) << "cut off";
  EXPECT_EQ(PrintableText("\xC2\x9B"), r) << "a control character of two bytes";
  EXPECT_EQ(PrintableText("a\nb"), "a" + r + "b");
  EXPECT_EQ(PrintableText("a\nb", true), "a\nb");
}

TEST(PrintableTextTest, AnythingAtAllBecomesPrintable) {
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes(random() % 40, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    const std::string text = PrintableText(bytes);
    EXPECT_EQ(PrintableText(text), text);
  }
}

constexpr int64_t kNoLimit = 0;

class WorkerLogTest : public testing::Test {
 protected:
  WorkerLogTest() {
    std::string folder = "/tmp/trainctl-log-test-XXXXXX";
    EXPECT_NE(::mkdtemp(folder.data()), nullptr);
    path_ = folder + "/log";
    folder_ = folder;
  }
  ~WorkerLogTest() override { (void)RemoveAll(folder_); }
  std::string folder_;
  std::string path_;
  DiskQueue disk_;
};

TEST_F(WorkerLogTest, TheTailIsOfThisAttemptOnly) {
  const auto ignore = [](absl::string_view line) {};
  {
    auto log = WorkerLog::Open(path_, kNoLimit, disk_);
    log->Add("earlier\n", ignore);
  }
  auto log = WorkerLog::Open(path_, kNoLimit, disk_);
  EXPECT_EQ(log->Tail(20), "");
  for (int i = 0; i < 100'000; ++i) log->Add(absl::StrCat("line ", i, "\n"), ignore);
  log->Add("no newline", ignore);
  EXPECT_EQ(log->Tail(3), "line 99998\nline 99999\nno newline\n");
}

TEST_F(WorkerLogTest, ALineSeparatesAttempts) {
  std::vector<std::string> lines;
  const auto keep = [&](absl::string_view line) { lines.emplace_back(line); };
  for (const char* text : {"half a li", "line\n", "end\n"}) {
    auto log = WorkerLog::Open(path_, kNoLimit, disk_);
    log->BeginAttempt(absl::FromUnixSeconds(1'800'000'000));
    log->Add(text, keep);
    EXPECT_EQ(log->Tail(9), absl::StrCat(absl::StripSuffix(text, "\n"), "\n"));
    ASSERT_TRUE(disk_.Wait(absl::Seconds(60)));
  }
  const std::string divider = "-------- started again at 2027-01-15 08:00:00 UTC --------\n";
  EXPECT_EQ(*ReadFile(path_), absl::StrCat("half a li\n", divider, "line\n", divider, "end\n"));
  EXPECT_EQ(lines, (std::vector<std::string>{"line", "end"}));
}

TEST_F(WorkerLogTest, ALogThatReachesItsLimitIsBegunAgainAtTheEndOfALine) {
  const auto ignore = [](absl::string_view line) {};
  const std::string older = WorkerLog::OlderPath(path_);
  auto log = WorkerLog::Open(path_, 10, disk_);
  for (const char* piece : {"first", " line\nsec", "ond line\n", "third\n"}) log->Add(piece, ignore);
  ASSERT_TRUE(disk_.Wait(absl::Seconds(60)));
  EXPECT_EQ(*ReadFile(older), "second line\n");
  EXPECT_EQ(*ReadFile(path_), "third\n");
  const std::vector<absl::Status> errors = disk_.TakeErrors();
  ASSERT_EQ(errors.size(), 1u) << "a line was lost";
  EXPECT_THAT(std::string(errors[0].message()), HasSubstr("launch.log_limit"));
  // Another attempt, which continues the file.
  log = WorkerLog::Open(path_, 10, disk_);
  log->Add("and\n", ignore);
  log->Add("more\n", ignore);
  ASSERT_TRUE(disk_.Wait(absl::Seconds(60)));
  EXPECT_EQ(*ReadFile(older), "third\nand\n");
  EXPECT_EQ(*ReadFile(path_), "more\n");
}

TEST_F(WorkerLogTest, ALineWithoutAnEndIsCutBeyondTheLimit) {
  auto log = WorkerLog::Open(path_, 10, disk_);
  for (int i = 0; i < 10; ++i) log->Add(std::string(1 << 20, 'x'), [](absl::string_view line) {});
  ASSERT_TRUE(disk_.Wait(absl::Seconds(60)));
  EXPECT_LE(*FileBytes(WorkerLog::OlderPath(path_)) + *FileBytes(path_), 4 << 20);
}

TEST_F(WorkerLogTest, AFullDiskIsSaidAndTheLinesStillCome) {
  auto log = WorkerLog::Open("/dev/full", kNoLimit, disk_);
  ASSERT_TRUE(log.ok());
  std::string seen;
  log->Add("hello\n", [&](absl::string_view line) { absl::StrAppend(&seen, line); });
  EXPECT_EQ(seen, "hello");
  log->Add("again\n", [](absl::string_view) {});
  ASSERT_TRUE(disk_.Wait(absl::Seconds(60)));
  const std::vector<absl::Status> errors = disk_.TakeErrors();
  ASSERT_EQ(errors.size(), 1u) << "it is said once";
  EXPECT_THAT(std::string(errors[0].message()), HasSubstr("No space left"));
  EXPECT_EQ(log->Tail(2), "hello\nagain\n");
}

// A FIFO that nobody reads is a disk that stands still.
TEST_F(WorkerLogTest, ADiskThatStandsStillHoldsNobodyUp) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  const int reader = ::open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  auto log = WorkerLog::Open(path_, kNoLimit, disk_);
  ASSERT_TRUE(log.ok()) << log.status();
  const std::string piece(1 << 20, 'x');
  std::string seen;
  for (int i = 0; i < 100; ++i) log->Add(piece + "\n", [](absl::string_view) {});
  log->Add("the end\n", [&](absl::string_view line) { absl::StrAppend(&seen, line); });
  EXPECT_EQ(seen, "the end");
  EXPECT_FALSE(disk_.Wait(absl::Milliseconds(20)));
  ::signal(SIGPIPE, SIG_IGN);
  ::close(reader);  // and now it fails
  EXPECT_TRUE(disk_.Wait(absl::Seconds(60)));
  EXPECT_EQ(disk_.TakeErrors().size(), 1u);
}

class CountingObserver : public JobObserver {
 public:
  void OnWorkerLine(const WorkerLine& line) override {
    lines.push_back(absl::StrCat(line.rank, ":", line.text));
  }
  void OnMessage(absl::string_view line) override { lines.push_back(absl::StrCat("m:", line)); }
  void OnProgress(const JobProgress& progress) override {
    if (!called.HasBeenNotified()) called.Notify();
    std::lock_guard hold(gate);
    lines.push_back(absl::StrCat("p", progress.rank, ":", progress.progress.step));
  }
  absl::Notification called;
  std::mutex gate;
  std::vector<std::string> lines;
};

TEST(ConsoleTest, EverythingIsShownInOrderBeforeTheEnd) {
  auto observer = std::make_shared<CountingObserver>();
  {
    Console console(observer);
    console.Show({"", 0, "a"});
    console.Message("b");
    console.Show({"", 1, "c"});
  }
  EXPECT_THAT(observer->lines, ElementsAre("0:a", "m:b", "1:c"));
}

TEST(ConsoleTest, ASlowObserverCostsLinesNotMemoryAndIsTold) {
  auto observer = std::make_shared<CountingObserver>();
  {
    Console console(observer);
    console.set_patience(absl::Minutes(1));
    const std::lock_guard stuck(observer->gate);
    console.Report({1, 0, 0, {1, "forward"}});
    observer->called.WaitForNotification();  // it is stuck
    const std::string line(1 << 20, 'x');
    for (int i = 0; i < 20; ++i) console.Show({"", 0, line});
  }
  EXPECT_LE(observer->lines.size(), 1u + Console::kMaxQueuedBytes / (1 << 20) + 1);
  EXPECT_THAT(observer->lines.back(), HasSubstr("lines were not shown"));
}

TEST(FdObserverTest, LinesCarryTheirRank) {
  int fds[2];
  ASSERT_EQ(::pipe(fds), 0);
  FdObserver observer(fds[1]);
  observer.OnWorkerLine({"", 12, "step 3"});
  observer.OnWorkerLine({"node2", 3, "step 4"});
  observer.OnMessage("restarting");
  ::close(fds[1]);
  char buffer[100];
  const ssize_t count = ::read(fds[0], buffer, sizeof(buffer));
  ::close(fds[0]);
  EXPECT_EQ(absl::string_view(buffer, count),
            "[rank 12] step 3\n[node2 rank 3] step 4\ntrainctl: restarting\n");
}

}  // namespace
}  // namespace trainctl::launcher
