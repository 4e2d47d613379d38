// Data sets that are larger than the memory: sparse files, so that the test needs no room.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "data/batch_source.h"
#include "data/fingerprint.h"
#include "tests/unit/data/data_test_util.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TRAINCTL_TSAN 1
#endif
#endif
#ifdef __SANITIZE_THREAD__
#define TRAINCTL_TSAN 1
#endif

namespace trainctl::data {
namespace {

constexpr int kFiles = 3;
constexpr int64_t kDocuments = 1000;

// The number in a line "NAME: 123 kB" of a file under /proc.
int64_t ProcNumber(const char* file, absl::string_view name) {
  std::ifstream in(file);
  for (std::string text; std::getline(in, text);) {
    absl::string_view line = text;
    if (!absl::ConsumePrefix(&line, name)) continue;
    absl::ConsumeSuffix(&line, "kB");
    int64_t value = -1;
    return absl::SimpleAtoi(line.substr(1), &value) ? value : -1;
  }
  return -1;
}

struct Usage {
  int64_t read_bytes = 0;    // by read(2)
  int64_t memory_bytes = 0;  // the most that was resident
  int64_t page_faults = 0;   // of maps
  bool good = false;
};

// In a process of its own: the most that was resident never comes down.
Usage Measure(const std::function<bool()>& work) {
  int ends[2];
  if (::pipe(ends) != 0) return {};
  const pid_t child = ::fork();
  if (child == 0) {
    Usage usage;
    rusage before;
    rusage after;
    const int64_t read_before = ProcNumber("/proc/self/io", "rchar");
    ::getrusage(RUSAGE_SELF, &before);
    usage.good = work();
    ::getrusage(RUSAGE_SELF, &after);
    usage.page_faults = after.ru_minflt + after.ru_majflt - before.ru_minflt - before.ru_majflt;
    usage.memory_bytes = ProcNumber("/proc/self/status", "VmHWM") * 1024;
    usage.read_bytes = ProcNumber("/proc/self/io", "rchar") - read_before;
    const bool written = ::write(ends[1], &usage, sizeof(usage)) == sizeof(usage);
    ::_exit(written ? 0 : 1);
  }
  ::close(ends[1]);
  Usage usage;
  const ssize_t count = ::read(ends[0], &usage, sizeof(usage));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return count == sizeof(usage) && status == 0 ? usage : Usage{};
}

class LargeSets : public DataTest {
 protected:
  // kFiles datasets of uint16 zeros, kDocuments each. False where the file system has no such files.
  bool MakeSet(const std::string& name, int64_t file_bytes) {
    const int64_t tokens = file_bytes / 2 / kDocuments;
    std::string index(kIndexMagic, sizeof(kIndexMagic));
    const auto put = [&index](auto value) {
      index.append(reinterpret_cast<const char*>(&value), sizeof(value));
    };
    put(kIndexVersion);
    put(static_cast<uint8_t>(TokenType::kU16));
    put(static_cast<uint64_t>(kDocuments));
    put(static_cast<uint64_t>(kDocuments + 1));
    for (int64_t i = 0; i < kDocuments; ++i) put(static_cast<int32_t>(tokens));
    for (int64_t i = 0; i < kDocuments; ++i) put(i * tokens * 2);
    for (int64_t i = 0; i <= kDocuments; ++i) put(i);
    for (int file = 0; file < kFiles; ++file) {
      const std::string prefix = absl::StrCat(name, file);
      Write(prefix + ".idx", index);
      Write(prefix + ".bin", "");
      if (::truncate(Path(prefix + ".bin").c_str(), tokens * 2 * kDocuments) != 0) return false;
    }
    return true;
  }

  // What a launch and its worker do with data: fingerprints, opening, held-out batches, training batches.
  Usage Use(const std::string& name) {
    std::vector<std::string> files;
    for (int file = 0; file < kFiles; ++file) files.push_back(Path(absl::StrCat(name, file, ".bin")));
    recipe::Recipe recipe = MakeRecipe({Source(files)}, 4, 1024);
    recipe.data.eval.emplace_back().holdout = 0.01;
    return Measure([recipe] {
      if (!Fingerprint(recipe.data).ok()) return false;
      const auto train = OpenTrainSource(recipe);
      const auto eval = OpenEvalSets(recipe);
      if (!train.ok() || !eval.ok()) return false;
      if (!(*eval)[0].source->Get(0, {0, 4}).ok()) return false;
      for (int64_t step = 0; step < 8; ++step) {
        if (!(*train)->Get(step * 1000, {0, 4}).ok()) return false;
      }
      return true;
    });
  }
};

TEST_F(LargeSets, MemoryAndReadsDoNotGrowWithTheFiles) {
#ifdef TRAINCTL_TSAN
  GTEST_SKIP() << "its shadow memory is not what is measured here";
#endif
  constexpr int64_t kMiB = int64_t{1} << 20;
  if (!MakeSet("small", 1000 * 1000 * 1000) || !MakeSet("large", int64_t{100} * 1000 * 1000 * 1000)) {
    GTEST_SKIP() << "this file system has no sparse files of 100 GB: " << Path("");
  }
  const Usage small = Use("small");
  const Usage large = Use("large");
  ASSERT_TRUE(small.good && large.good);
  // The same reads to the byte, but for the digits in /proc.
  EXPECT_NEAR(static_cast<double>(large.read_bytes), static_cast<double>(small.read_bytes), 4096.0);
  EXPECT_LT(large.read_bytes, kFiles * 8 * kMiB);
  EXPECT_NEAR(static_cast<double>(large.memory_bytes), static_cast<double>(small.memory_bytes), 8.0 * kMiB);
  EXPECT_NEAR(static_cast<double>(large.page_faults), static_cast<double>(small.page_faults), 2000.0);
  RecordProperty("read_bytes", std::to_string(large.read_bytes));
  RecordProperty("memory_bytes", std::to_string(large.memory_bytes));
  RecordProperty("page_faults", std::to_string(large.page_faults));
}

TEST_F(LargeSets, AFingerprintOfALargeFileSeesItsEndsItsSizeAndItsPieces) {
  const std::string path = Write("a.bin", "");
  constexpr int64_t kBytes = kWholeFileBytes + 1000;
  const auto change = [&](int64_t offset, char value) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    EXPECT_EQ(::pwrite(fd, &value, 1, offset), 1);
    ::close(fd);
  };
  ASSERT_EQ(::truncate(path.c_str(), kBytes), 0);
  const auto before = QuickFingerprintFile(path);
  ASSERT_TRUE(before.ok()) << before.status();
  EXPECT_TRUE(before->sampled);
  EXPECT_EQ(before->size_bytes, kBytes);
  const int64_t last_piece = kBytes - kFingerprintPieceBytes;
  for (const int64_t offset :
       {int64_t{0}, kBytes - 1, last_piece, last_piece / (kFingerprintPieces - 1) + 1}) {
    change(offset, 'x');
    EXPECT_NE(QuickFingerprintFile(path)->xxh3, before->xxh3) << offset;
    change(offset, '\0');
    EXPECT_EQ(QuickFingerprintFile(path)->xxh3, before->xxh3) << offset;
  }
  ASSERT_EQ(::truncate(path.c_str(), kWholeFileBytes), 0);
  EXPECT_FALSE(QuickFingerprintFile(path)->sampled);
  EXPECT_EQ(QuickFingerprintFile(path)->xxh3, FingerprintFile(path)->xxh3);
}

}  // namespace
}  // namespace trainctl::data
