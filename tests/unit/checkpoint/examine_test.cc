// Whoever asks what a checkpoint is worth gets the same answer.

#include "checkpoint/examine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status.h"
#include "checkpoint/block_writer.h"
#include "checkpoint/finite_values.h"
#include "checkpoint_test_util.h"

namespace trainctl::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A manifest that this version does not read, sealed as a newer one would have done.
void MakeNewer(const std::string& manifest) {
  std::string text =
      absl::StrReplaceAll(ReadOrDie(manifest), {{"trainctl.checkpoint.v2", "trainctl.checkpoint.v3"}});
  const std::string head = ",\"manifest_xxh3\":\"";
  text = text.substr(0, text.rfind(head));
  WriteOrDie(
      manifest,
      absl::StrCat(text, head, absl::Hex(ChecksumXxh3(text.data(), text.size()), absl::kZeroPad16), "\"}\n"));
}

// Saves two weights and a state of the optimizer, with `value` as the element `at` of `name`.
absl::Status SaveWith(const std::string& root, int64_t step, const std::string& name, int64_t at,
                      float value) {
  const std::vector<Slice> slices = {Whole("layer.weight", DType::kF32, {700, 600}),
                                     Whole("norm.weight", DType::kF32, {5}),
                                     Whole("optimizer.exp_avg/norm.weight", DType::kF32, {5})};
  CheckpointWriter writer(root, step, 0, 1);
  TRAINCTL_RETURN_IF_ERROR(writer.Begin());
  TRAINCTL_RETURN_IF_ERROR(
      writer.Write(slices, [&](size_t slice, int64_t begin, absl::Span<std::byte> bytes) {
        std::vector<float> values(bytes.size() / sizeof(float), 1.5F);
        const int64_t end = begin + static_cast<int64_t>(values.size());
        if (slices[slice].name == name && begin <= at && at < end)
          values[static_cast<size_t>(at - begin)] = value;
        std::memcpy(bytes.data(), values.data(), bytes.size());
        return absl::OkStatus();
      }));
  return writer.Commit({.step = step});
}

class ExamineTest : public testing::Test {
 protected:
  ExamineTest() {
    EXPECT_TRUE(Save(root_, 4, TwoRanks(), 4).ok());
    EXPECT_TRUE(Save(root_, 8, TwoRanks(), 8).ok());
  }
  TempFolder folder_;
  const std::string root_ = folder_.path();
  const std::string newest_ = StepPath(root_, 8);
};

TEST_F(ExamineTest, WhatIsWholeIsCommittedAndReadToTheEndGood) {
  const Examined quick = Examine({newest_, 8, 0}, Depth::kManifest);
  EXPECT_EQ(quick.condition, Condition::kCommitted) << quick.status;
  EXPECT_EQ(quick.world_size, 2);
  EXPECT_EQ(quick.num_tensors, 2u);
  const Examined whole = Examine({newest_, 8, 0}, Depth::kEveryByte);
  EXPECT_EQ(whole.condition, Condition::kGood) << whole.status;
  EXPECT_TRUE(whole.status.ok());
  EXPECT_EQ(FindNewestCommitted(root_).step, 8);
  EXPECT_THAT(FindNewestCommitted(root_).passed_over, IsEmpty());
}

TEST_F(ExamineTest, EveryoneSaysTheSameOfACheckpointThatIsNotOne) {
  struct Case {
    std::function<void(const std::string&)> make;  // at step-00000012
    Condition condition;
    std::string words;
  };
  const std::string elsewhere = folder_.path() + "/elsewhere";
  const std::vector<Case> cases = {
      {[&](const std::string& path) {  // step 8 under another step's name
         ASSERT_EQ(::rename(newest_.c_str(), path.c_str()), 0);
       },
       Condition::kDamaged, "contains step 8, not 12"},
      {[](const std::string& path) { ASSERT_TRUE(MakeDirs(path).ok()); }, Condition::kDamaged,
       "it does not contain manifest.json"},
      {[&](const std::string& path) {
         ASSERT_TRUE(Save(elsewhere, 12, TwoRanks(), 12).ok());
         ASSERT_EQ(::symlink(StepPath(elsewhere, 12).c_str(), path.c_str()), 0);
       },
       Condition::kDamaged, "a symbolic link, which is not followed"},
      {[](const std::string& path) { WriteOrDie(path, "a file"); }, Condition::kDamaged, "not a folder"},
      {[&](const std::string& path) {
         ASSERT_TRUE(Save(root_, 12, TwoRanks(), 12).ok());
         ASSERT_EQ(::unlink((path + "/rank-00001.safetensors").c_str()), 0);
       },
       Condition::kDamaged, "rank-00001.safetensors is missing"},
      {[&](const std::string& path) {
         ASSERT_TRUE(Save(root_, 12, TwoRanks(), 12).ok());
         MakeNewer(path + "/manifest.json");
       },
       Condition::kUnreadable, "newer than"},
      {[&](const std::string& path) {  // the manifest cannot be read, whoever asks
         ASSERT_TRUE(Save(root_, 12, TwoRanks(), 12).ok());
         ASSERT_EQ(::unlink((path + "/manifest.json").c_str()), 0);
         ASSERT_TRUE(MakeDirs(path + "/manifest.json").ok());
       },
       Condition::kUnreadable, "manifest.json"},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.words);
    const std::string path = StepPath(root_, 12);
    one.make(path);
    const bool renamed = !PathExists(newest_);
    const int64_t good_step = renamed ? 4 : 8;
    for (const Depth depth : {Depth::kManifest, Depth::kEveryByte}) {
      const Examined examined = Examine({path, 12, 0}, depth);
      EXPECT_EQ(examined.condition, one.condition) << examined.status;
      EXPECT_THAT(std::string(examined.status.message()), HasSubstr(one.words));
      EXPECT_EQ(ExamineFolder(path + "/", depth).condition, one.condition);
      const auto all = ExamineAll(root_, depth);
      ASSERT_TRUE(all.ok());
      EXPECT_EQ(all->back().info.step, 12);
      EXPECT_EQ(all->back().condition, one.condition);
    }
    const NewestCommitted committed = FindNewestCommitted(root_);
    EXPECT_EQ(committed.step, good_step);
    EXPECT_THAT(
        committed.Problems(),
        ElementsAre(testing::AllOf(HasSubstr(one.words),
                                   HasSubstr(absl::StrCat("step 12 is ", ConditionName(one.condition))))));
    std::vector<std::string> warnings;
    const auto good = FindNewestGood(root_, &warnings);
    if (one.condition == Condition::kUnreadable) {
      EXPECT_EQ(ExitCodeFor(good.status()), ExitCode::kEnvironment) << good.status();
    } else {
      ASSERT_TRUE(good.ok()) << good.status();
      EXPECT_EQ(good->step, good_step);
      EXPECT_THAT(warnings, ElementsAre(HasSubstr(one.words)));
    }
    if (renamed) {
      ASSERT_EQ(::rename(path.c_str(), newest_.c_str()), 0);
    } else if (::unlink(path.c_str()) != 0) {
      ASSERT_TRUE(RemoveAll(path).ok());
    }
  }
}

TEST_F(ExamineTest, ACopyUnderAnyOtherNameIsItself) {
  const std::string copy = folder_.path() + "/the best one";
  ASSERT_EQ(::rename(newest_.c_str(), copy.c_str()), 0);
  const Examined examined = ExamineFolder(copy, Depth::kEveryByte);
  EXPECT_EQ(examined.condition, Condition::kGood) << examined.status;
  EXPECT_EQ(examined.info.step, 8);
}

TEST_F(ExamineTest, WhatIsKnownIsNotReadAgain) {
  WriteOrDie(newest_ + "/manifest.json", "rubbish");
  EXPECT_EQ(FindNewestCommitted(root_).step, 4);
  const NewestCommitted newer = FindNewestCommitted(root_, 8);
  EXPECT_EQ(newer.step, -1);
  EXPECT_THAT(newer.passed_over, IsEmpty());
  EXPECT_EQ(FindNewestCommitted(root_ + "/absent").step, -1);
  EXPECT_THAT(FindNewestCommitted(root_ + "/absent").Problems(), IsEmpty());
  const std::string file = newest_ + "/manifest.json";
  EXPECT_THAT(FindNewestCommitted(file).Problems(), ElementsAre(HasSubstr("cannot open folder " + file)));
}

TEST_F(ExamineTest, WeightsThatAreNotFiniteAreNamedAndNeverGood) {
  // The last element of a chunk of 1 MiB or near it, the first of all, and one of a small tensor.
  const std::vector<std::pair<std::string, int64_t>> places = {
      {"layer.weight", 0}, {"layer.weight", 262'100}, {"layer.weight", 700 * 600 - 1}, {"norm.weight", 2}};
  for (const auto& [name, at] : places) {
    for (const float value : {std::nanf(""), -INFINITY}) {
      ASSERT_TRUE(SaveWith(root_, 12, name, at, value).ok());
      EXPECT_EQ(Examine({StepPath(root_, 12), 12, 0}, Depth::kManifest).condition, Condition::kCommitted);
      const Examined examined = Examine({StepPath(root_, 12), 12, 0}, Depth::kEveryByte);
      EXPECT_EQ(examined.condition, Condition::kNonFinite) << name << " " << at;
      EXPECT_THAT(std::string(examined.status.message()), HasSubstr("NaN or infinite values in " + name));
      EXPECT_EQ(ExitCodeFor(examined.status), ExitCode::kBadData);
      std::vector<std::string> warnings;
      EXPECT_EQ(FindNewestGood(root_, &warnings)->step, 8);
      EXPECT_THAT(warnings, ElementsAre(HasSubstr("step 12 is non-finite and was skipped")));
    }
  }
  ASSERT_TRUE(SaveWith(root_, 12, "optimizer.exp_avg/norm.weight", 1, INFINITY).ok());
  EXPECT_EQ(FindNewestGood(root_, nullptr)->step, 12) << "what the optimizer keeps is its own affair";
}

TEST_F(ExamineTest, RetentionKeepsTheGoodOneBeforeOneThatIsNotFinite) {
  ASSERT_TRUE(SaveWith(root_, 12, "norm.weight", 0, std::nanf("")).ok());
  ASSERT_TRUE(ApplyRetention(root_, {1, 0}).ok());
  EXPECT_TRUE(PathExists(newest_));
  EXPECT_FALSE(PathExists(StepPath(root_, 4)));
}

TEST_F(ExamineTest, ALinkIsNeverFollowedToBeRemoved) {
  const std::string elsewhere = folder_.path() + "/elsewhere";
  ASSERT_TRUE(Save(elsewhere, 2, TwoRanks(), 2).ok());
  ASSERT_EQ(::symlink(StepPath(elsewhere, 2).c_str(), StepPath(root_, 2).c_str()), 0);
  ASSERT_TRUE(ApplyRetention(root_, {1, 0}, 8).ok());
  ASSERT_TRUE(Save(root_, 2, TwoRanks(), 3).ok());  // takes its place
  EXPECT_EQ(Examine({StepPath(root_, 2), 2, 0}, Depth::kEveryByte).condition, Condition::kGood);
  EXPECT_EQ(Examine({StepPath(elsewhere, 2), 2, 0}, Depth::kEveryByte).condition, Condition::kGood);
}

TEST(FiniteValues, EveryTypeHasItsOwnPatterns) {
  // IEEE 754: infinity is an exponent of ones with a mantissa of zeros, NaN one with any other; the largest
  // finite number has the exponent before.
  struct Case {
    DType dtype;
    uint64_t infinity, nan, largest;
  };
  for (const Case& one :
       {Case{DType::kF32, 0x7f800000, 0xffc00001, 0x7f7fffff},
        Case{DType::kF64, 0xfff0000000000000, 0x7ff0000000000001, 0x7fefffffffffffff},
        Case{DType::kBF16, 0xff80, 0x7f81, 0x7f7f}, Case{DType::kF16, 0x7c00, 0xfe00, 0x7bff}}) {
    const auto width = static_cast<size_t>(DTypeBytes(one.dtype));
    for (const size_t at : {0, 7, 100}) {
      std::vector<std::byte> bytes(101 * width);
      const auto put = [&](uint64_t bits) { std::memcpy(&bytes[at * width], &bits, width); };
      put(one.largest);
      EXPECT_TRUE(AllFinite(one.dtype, bytes));
      put(one.infinity);
      EXPECT_FALSE(AllFinite(one.dtype, bytes));
      put(one.nan);
      EXPECT_FALSE(AllFinite(one.dtype, bytes));
    }
  }
  const std::vector<std::byte> ones(16, std::byte{0xff});
  EXPECT_TRUE(AllFinite(DType::kI32, ones));
}

}  // namespace
}  // namespace trainctl::checkpoint
