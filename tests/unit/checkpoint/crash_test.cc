// Crash consistency. Saves run against real files while their system calls are recorded; then, for
// every prefix of the record, what a crash there may leave on the disk is laid out in a folder and
// opened. A crash keeps what was synced; of the rest it may keep anything from nothing to all, but
// the changes of one folder in their order.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <set>

#include "absl/strings/match.h"
#include "tests/unit/checkpoint/checkpoint_test_util.h"

namespace trainctl::checkpoint {
namespace {

using testing::IsEmpty;

enum class Kind { kCreate, kWrite, kFsync, kFsyncDir, kMkdir, kRename, kExchange, kUnlink, kRmdir };

struct Call {
  Kind kind;
  std::string path;
  std::string other;  // second path, or the bytes written
};

// What to leave out, as a mistaken implementation would.
enum class Mistake { kNone, kNoFileSync, kNoTemporaryFolderSync, kNoParentSync, kRenameBeforeSync };

class RecordingOps : public FileOps {
 public:
  RecordingOps(std::string root, bool can_exchange, Mistake mistake)
      : root_(std::move(root)), can_exchange_(can_exchange), mistake_(mistake) {}

  int CreateNew(const std::string& path, bool) override {
    const int fd = FileOps::CreateNew(path, false);
    if (fd >= 0) path_of_fd_[fd] = path;
    return Record(fd, {Kind::kCreate, path, ""});
  }
  ssize_t Write(int fd, const void* data, size_t num_bytes) override {
    // In small pieces, so that there are crashes inside a file.
    const ssize_t written = FileOps::Write(fd, data, std::min<size_t>(num_bytes, 100));
    Record(0, {Kind::kWrite, path_of_fd_[fd], std::string(static_cast<const char*>(data), written)});
    return written;
  }
  int Fsync(int fd) override {
    if (mistake_ == Mistake::kNoFileSync) return 0;
    const Call call{Kind::kFsync, path_of_fd_[fd], ""};
    if (mistake_ == Mistake::kRenameBeforeSync) {
      delayed_.push_back(call);
      return 0;
    }
    return Record(FileOps::Fsync(fd), call);
  }
  int FsyncDir(const std::string& path) override {
    if (mistake_ == Mistake::kNoTemporaryFolderSync && path != root_) return 0;
    if (mistake_ == Mistake::kNoParentSync && path == root_) return 0;
    return Record(0, {Kind::kFsyncDir, path, ""});
  }
  int Mkdir(const std::string& path) override {
    return Record(FileOps::Mkdir(path), {Kind::kMkdir, path, ""});
  }
  int Rename(const std::string& from, const std::string& to) override {
    const int result = Record(FileOps::Rename(from, to), {Kind::kRename, from, to});
    for (Call call : delayed_) {
      call.path.replace(0, from.size(), to);
      Record(0, call);
    }
    delayed_.clear();
    return result;
  }
  int Exchange(const std::string& a, const std::string& b) override {
    if (!can_exchange_) {
      errno = EINVAL;
      return -1;
    }
    return Record(FileOps::Exchange(a, b), {Kind::kExchange, a, b});
  }
  int Unlink(const std::string& path) override {
    return Record(FileOps::Unlink(path), {Kind::kUnlink, path, ""});
  }
  int Rmdir(const std::string& path) override {
    return Record(FileOps::Rmdir(path), {Kind::kRmdir, path, ""});
  }

  const std::vector<Call>& calls() const { return calls_; }

 private:
  int Record(int result, Call call) {
    if (result >= 0) calls_.push_back(std::move(call));
    return result;
  }
  std::string root_;
  bool can_exchange_;
  Mistake mistake_;
  std::vector<Call> calls_;
  std::vector<Call> delayed_;
  std::map<int, std::string> path_of_fd_;
};

// A file system in memory that knows what is durable.
class DiskModel {
 public:
  explicit DiskModel(std::string root) : root_(std::move(root)) { NewNode(true); }

  void Apply(const Call& call) {
    switch (call.kind) {
      case Kind::kCreate:
      case Kind::kMkdir:
        Change(call.path, NewNode(call.kind == Kind::kMkdir));
        break;
      case Kind::kWrite:
        nodes_[Lookup(call.path)].data += call.other;
        break;
      case Kind::kFsync: {
        Node& file = nodes_[Lookup(call.path)];
        file.durable_bytes = file.data.size();
        break;
      }
      case Kind::kFsyncDir: {
        std::vector<Entries>& states = nodes_[Lookup(call.path)].states;
        states.erase(states.begin(), states.end() - 1);
        break;
      }
      case Kind::kRename: {
        Entries entries = nodes_[0].states.back();
        entries[NameOf(call.other)] = entries[NameOf(call.path)];
        entries.erase(NameOf(call.path));
        nodes_[0].states.push_back(std::move(entries));
        break;
      }
      case Kind::kExchange: {
        Entries entries = nodes_[0].states.back();
        std::swap(entries[NameOf(call.other)], entries[NameOf(call.path)]);
        nodes_[0].states.push_back(std::move(entries));
        break;
      }
      case Kind::kUnlink:
      case Kind::kRmdir:
        Change(call.path, -1);
        break;
    }
  }

  // Chooses which of `num_choices` states, 0 (only what is durable) to num_choices - 1 (everything).
  using Choose = std::function<size_t(bool is_folder, size_t num_choices)>;
  void LayOut(const std::string& target, const Choose& choose) const { LayOut(0, target, choose); }

 private:
  using Entries = std::map<std::string, int>;
  struct Node {
    std::vector<Entries> states = {{}};  // of a folder: the durable one, then each later one
    std::string data;                    // of a file
    size_t durable_bytes = 0;
    bool is_folder = false;
  };

  int NewNode(bool is_folder) {
    nodes_.emplace_back();
    nodes_.back().is_folder = is_folder;
    return static_cast<int>(nodes_.size()) - 1;
  }
  static std::string NameOf(const std::string& path) { return path.substr(path.rfind('/') + 1); }
  int Lookup(const std::string& path) const {
    if (path == root_) return 0;
    return nodes_[Lookup(path.substr(0, path.rfind('/')))].states.back().at(NameOf(path));
  }
  void Change(const std::string& path, int node) {
    const int folder = Lookup(path.substr(0, path.rfind('/')));
    Entries entries = nodes_[folder].states.back();
    if (node < 0) {
      entries.erase(NameOf(path));
    } else {
      entries[NameOf(path)] = node;
    }
    nodes_[folder].states.push_back(std::move(entries));
  }
  void LayOut(int id, const std::string& target, const Choose& choose) const {
    const Node& node = nodes_[id];
    if (!node.is_folder) {
      const size_t unsynced = node.data.size() - node.durable_bytes;
      WriteOrDie(target, node.data.substr(0, node.durable_bytes + choose(false, unsynced + 1)));
      return;
    }
    ASSERT_TRUE(MakeDirs(target).ok());
    for (const auto& [name, child] : node.states[choose(true, node.states.size())]) {
      LayOut(child, target + "/" + name, choose);
    }
  }

  std::string root_;
  std::vector<Node> nodes_;
};

// Thousands of folders are laid out; in memory where there is one.
std::string FastFolder() { return ::access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : testing::TempDir(); }

struct Saved {
  int64_t step;
  uint64_t seed;
  bool operator==(const Saved& other) const { return step == other.step && seed == other.seed; }
};

class CrashTest {
 public:
  CrashTest(bool can_exchange, Mistake mistake)
      : stop_at_first_(mistake != Mistake::kNone),
        folder_(FastFolder()),
        root_(folder_.path() + "/checkpoints"),
        ops_(root_, can_exchange, mistake) {
    EXPECT_TRUE(MakeDirs(root_).ok());
  }

  void SaveStep(int64_t step, uint64_t seed) {
    pending_ = {step, seed};
    const size_t begin = ops_.calls().size();
    const absl::Status status =
        Save(root_, step, TwoRanks(), seed, &ops_, absl::StrCat("{\"seed\":", seed, "}"));
    ASSERT_TRUE(status.ok()) << status;
    CrashInside(begin);
    acknowledged_ = pending_;
  }
  void Retain(int64_t keep) {
    pending_ = acknowledged_;
    const size_t begin = ops_.calls().size();
    ASSERT_TRUE(ApplyRetention(root_, {keep, 0}, acknowledged_.step, &ops_).ok());
    CrashInside(begin);
  }
  void CrashAtTheEnd() {
    pending_ = acknowledged_;
    CheckAfter(ops_.calls().size());
  }

  const std::vector<std::string>& violations() const { return violations_; }
  int num_crashes() const { return num_crashes_; }

 private:
  // A crash after each call from `begin` on but the last: after it, the operation is acknowledged,
  // which the next operation's first check (or CrashAtTheEnd) holds it to.
  void CrashInside(size_t begin) {
    for (size_t num_calls = begin; num_calls < ops_.calls().size(); ++num_calls) CheckAfter(num_calls);
  }

  void CheckAfter(size_t num_calls) {
    DiskModel disk(root_);
    for (size_t i = 0; i < num_calls; ++i) disk.Apply(ops_.calls()[i]);
    const auto all = [](bool, size_t n) { return n - 1; };
    const auto none = [](bool, size_t) { return size_t{0}; };
    const auto names_only = [](bool is_folder, size_t n) { return is_folder ? n - 1 : 0; };
    Check(disk, all, num_calls, "everything kept");
    Check(disk, none, num_calls, "only what was synced");
    Check(disk, names_only, num_calls, "names kept, unsynced bytes lost");
    for (uint64_t i = 0; i < 3; ++i) {
      uint64_t draw = 0;
      Check(
          disk, [&](bool, size_t n) { return static_cast<size_t>(RandomBelow(num_calls, i, draw++, n)); },
          num_calls, "a random part kept");
    }
  }

  void Check(const DiskModel& disk, const DiskModel::Choose& choose, size_t num_calls, const char* kept) {
    ++num_crashes_;
    if (stop_at_first_ && !violations_.empty()) return;
    TempFolder crashed(FastFolder());
    disk.LayOut(crashed.path() + "/checkpoints", choose);
    const auto report = [&](const std::string& what) {
      violations_.push_back(absl::StrCat("crash after call ", num_calls, " (", kept, "): ", what));
    };
    std::vector<std::string> warnings;
    const auto found = FindNewestGood(crashed.path() + "/checkpoints", &warnings);
    if (!warnings.empty()) report("a committed checkpoint is damaged: " + warnings[0]);
    if (found.status().code() == absl::StatusCode::kNotFound) {
      if (acknowledged_.step != 0) report("no checkpoint, although one was acknowledged");
      return;
    }
    if (!found.ok()) return report(std::string(found.status().message()));
    const auto reader = CheckpointReader::Open(found->path);
    const std::string state = reader->meta().state_json;
    const Saved loaded{found->step, std::stoull(state.substr(state.find(':') + 1))};
    if (!(loaded == acknowledged_) && !(loaded == pending_)) {
      report(absl::StrCat("step ", loaded.step, " of save ", loaded.seed, " was loaded instead of step ",
                          acknowledged_.step, " of save ", acknowledged_.seed));
    }
    ExpectContents(*reader, TwoRanksWhole(), loaded.seed);  // never a mixture
  }

  bool stop_at_first_;
  TempFolder folder_;
  std::string root_;
  RecordingOps ops_;
  Saved acknowledged_ = {0, 0};
  Saved pending_ = {0, 0};
  std::vector<std::string> violations_;
  int num_crashes_ = 0;
};

std::vector<std::string> ViolationsWith(bool can_exchange, Mistake mistake) {
  CrashTest test(can_exchange, mistake);
  test.SaveStep(1, 11);
  test.SaveStep(2, 12);
  test.Retain(1);
  test.SaveStep(2, 13);  // again: replaces
  test.SaveStep(3, 14);
  test.Retain(1);
  test.CrashAtTheEnd();
  std::printf("%d crashes, %s\n", test.num_crashes(),
              test.violations().empty() ? "no violation" : test.violations()[0].c_str());
  EXPECT_GT(test.num_crashes(), 500);
  return test.violations();
}

TEST(CrashConsistency, AfterAnyCrashTheAcknowledgedOrTheNextCheckpointIsThereWhole) {
  EXPECT_THAT(ViolationsWith(true, Mistake::kNone), IsEmpty());
}

TEST(CrashConsistency, AlsoWhereFoldersCannotBeSwapped) {
  EXPECT_THAT(ViolationsWith(false, Mistake::kNone), IsEmpty());
}

// The test itself: each sync left out, or done too late, is noticed.
TEST(CrashConsistency, EveryMissingSyncIsNoticed) {
  EXPECT_THAT(ViolationsWith(true, Mistake::kNoFileSync), testing::Not(IsEmpty()));
  EXPECT_THAT(ViolationsWith(true, Mistake::kNoTemporaryFolderSync), testing::Not(IsEmpty()));
  EXPECT_THAT(ViolationsWith(true, Mistake::kNoParentSync), testing::Not(IsEmpty()));
  EXPECT_THAT(ViolationsWith(true, Mistake::kRenameBeforeSync), testing::Not(IsEmpty()));
}

}  // namespace
}  // namespace trainctl::checkpoint
