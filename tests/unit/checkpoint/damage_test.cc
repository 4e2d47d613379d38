// A damaged checkpoint is never loaded: not with a flipped bit anywhere, not truncated, not with a
// file missing. What is older and good is found instead.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "absl/strings/str_replace.h"
#include "checkpoint/block_writer.h"
#include "checkpoint/manifest.h"
#include "tests/unit/checkpoint/checkpoint_test_util.h"

namespace trainctl::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

absl::Status OpenAndVerify(const std::string& path) {
  const auto reader = CheckpointReader::Open(path);
  return reader.ok() ? reader->Verify() : reader.status();
}

TEST(CheckpointDamage, EveryFlippedBitOfTheManifestIsDetected) {
  TempFolder folder;
  ASSERT_TRUE(Save(folder.path(), 1, TwoRanks(), 1, nullptr, R"({"lr":0.1})").ok());
  const std::string text = ReadOrDie(StepPath(folder.path(), 1) + "/manifest.json");
  ASSERT_TRUE(ParseManifest(text, "m").ok());
  std::string damaged = text;
  for (size_t i = 0; i < text.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      damaged[i] = static_cast<char>(text[i] ^ (1 << bit));
      ASSERT_EQ(ExitCodeFor(ParseManifest(damaged, "m").status()), ExitCode::kBadData)
          << "byte " << i << " bit " << bit;
    }
    damaged[i] = text[i];
  }
  for (size_t length = 0; length < text.size(); ++length) {
    ASSERT_FALSE(ParseManifest(absl::string_view(text).substr(0, length), "m").ok()) << length;
  }
  EXPECT_FALSE(ParseManifest(text + " ", "m").ok());
  EXPECT_FALSE(ParseManifest(text + text, "m").ok());
}

TEST(CheckpointDamage, EveryFlippedByteOfARankFileIsDetectedByVerifyAndByReading) {
  TempFolder folder;
  ASSERT_TRUE(Save(folder.path(), 1, TwoRanks(), 1).ok());
  const std::string path = StepPath(folder.path(), 1);
  for (const char* name : {"rank-00000.safetensors", "rank-00001.safetensors"}) {
    const std::string good = ReadOrDie(path + "/" + name);
    for (size_t i = 0; i < good.size(); ++i) {
      std::string damaged = good;
      damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
      WriteOrDie(path + "/" + name, damaged);
      const auto reader = CheckpointReader::Open(path);
      ASSERT_TRUE(reader.ok());
      const absl::Status verified = reader->Verify();
      ASSERT_EQ(ExitCodeFor(verified), ExitCode::kBadData) << name << " byte " << i;
      ASSERT_THAT(std::string(verified.message()), HasSubstr(name));
      const absl::Status read = reader->Read(
          TwoRanksWhole(), [](size_t, int64_t, absl::Span<const std::byte>) { return absl::OkStatus(); });
      ASSERT_EQ(ExitCodeFor(read), ExitCode::kBadData);
      ASSERT_THAT(std::string(read.message()), HasSubstr("'embed'"));
    }
    WriteOrDie(path + "/" + name, good);
  }
  EXPECT_TRUE(OpenAndVerify(path).ok());
}

TEST(CheckpointDamage, GitLfsPointersAreNamedAsSuch) {
  TempFolder folder;
  ASSERT_TRUE(Save(folder.path(), 1, TwoRanks(), 1).ok());
  const std::string path = StepPath(folder.path(), 1);
  for (const char* name : {"rank-00001.safetensors", "manifest.json"}) {
    WriteOrDie(path + "/" + name, "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n");
    const absl::Status status = OpenAndVerify(path);
    EXPECT_EQ(ExitCodeFor(status), ExitCode::kBadData);
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(name) + " is a Git LFS pointer"));
  }
}

TEST(CheckpointDamage, OnlyTheDamagedChunkCannotBeRead) {
  TempFolder folder;
  const Slice large = Whole("large", DType::kF32, {4 << 18});  // 4 MiB: chunks 0 to 4
  ASSERT_TRUE(Save(folder.path(), 1, {{large}}, 5).ok());
  const std::string path = StepPath(folder.path(), 1);
  std::string contents = ReadOrDie(path + "/rank-00000.safetensors");
  contents[(2 << 20) + 100] ^= 1;
  WriteOrDie(path + "/rank-00000.safetensors", contents);
  const auto reader = CheckpointReader::Open(path);
  ASSERT_TRUE(reader.ok());
  const absl::Status verified = reader->Verify();
  EXPECT_THAT(std::string(verified.message()),
              HasSubstr("rank-00000.safetensors: damaged: chunk 2 (bytes 2097152 to 3145728, tensor large)"));
  ExpectContents(*reader, {PartOf(large, 0, 1 << 18)}, 5);
  const Slice inside = PartOf(large, (2 << 18) + 1000, 1);
  const absl::Status read = reader->Read({inside}, [](size_t, int64_t, absl::Span<const std::byte>) {
    ADD_FAILURE() << "bytes of a damaged chunk were handed out";
    return absl::OkStatus();
  });
  EXPECT_EQ(ExitCodeFor(read), ExitCode::kBadData);
}

// Two ranks hold the columns of one matrix. Whatever a box does not need may be damaged.
TEST(CheckpointDamage, ABoxIsReadFromTheChunksThatHoldIt) {
  TempFolder folder;
  Slice left = Whole("w", DType::kF32, {1024, 1024}), right = left;
  left.box.dims[1].end = right.box.dims[1].begin = 512;  // 2 MiB each: chunks 0 to 2
  ASSERT_TRUE(Save(folder.path(), 1, {{left}, {right}}, 5).ok());
  const std::string path = StepPath(folder.path(), 1);
  for (const char* name : {"rank-00000.safetensors", "rank-00001.safetensors"}) {
    std::string contents = ReadOrDie(path + "/" + name);
    const size_t chunk = name[9] == '0' ? 1 : 0;
    contents[(chunk << 20) + 700'000] ^= 1;
    WriteOrDie(path + "/" + name, contents);
  }
  const auto reader = CheckpointReader::Open(path);
  ASSERT_TRUE(reader.ok());
  const auto read = [&](const layout::Box& box) {
    Slice slice = left;
    slice.box = box;
    return reader->Read({slice},
                        [](size_t, int64_t, absl::Span<const std::byte>) { return absl::OkStatus(); });
  };
  // A row of 512 columns is 2 KiB, so chunk 0 ends within row 511.
  Slice good = left;
  good.box = {{{3, 500}, {100, 512}}};
  ExpectContents(*reader, {good}, 5);
  good.box = {{{512, 1024}, {512, 1000}}};
  ExpectContents(*reader, {good}, 5);
  EXPECT_EQ(ExitCodeFor(read({{{3, 500}, {100, 513}}})), ExitCode::kBadData);
  EXPECT_EQ(ExitCodeFor(read({{{600, 601}, {511, 512}}})), ExitCode::kBadData);
}

TEST(CheckpointDamage, ANewerFormatIsRefusedAndNotPassedOver) {
  TempFolder folder;
  ASSERT_TRUE(Save(folder.path(), 1, TwoRanks(), 1).ok());
  ASSERT_TRUE(Save(folder.path(), 2, TwoRanks(), 2).ok());
  const std::string manifest = StepPath(folder.path(), 2) + "/manifest.json";
  std::string text =
      absl::StrReplaceAll(ReadOrDie(manifest), {{"trainctl.checkpoint.v2", "trainctl.checkpoint.v3"}});
  WriteOrDie(manifest, text);  // its checksum does not fit: damaged, whatever version it claims
  std::vector<std::string> warnings;
  EXPECT_EQ(FindNewestGood(folder.path(), &warnings)->step, 1);
  // Sealed as a newer trainctl would have done.
  const std::string head = ",\"manifest_xxh3\":\"";
  text = text.substr(0, text.rfind(head));
  char digits[32];
  std::snprintf(digits, sizeof digits, "%016llx",
                static_cast<unsigned long long>(ChecksumXxh3(text.data(), text.size())));
  WriteOrDie(manifest, text + head + digits + "\"}\n");
  const auto found = FindNewestGood(folder.path(), &warnings);
  EXPECT_EQ(ExitCodeFor(found.status()), ExitCode::kEnvironment);
  EXPECT_THAT(std::string(found.status().message()),
              HasSubstr("format trainctl.checkpoint.v3, which is newer than trainctl.checkpoint.v2"));
  EXPECT_TRUE(ApplyRetention(folder.path(), {1, 0}).ok());
  EXPECT_EQ(ListCheckpoints(folder.path())->size(), 2u) << "retention removed what it cannot judge";
}

class FallBack : public testing::Test {
 protected:
  void SetUp() override {
    for (int64_t step : {10, 20, 30}) {
      ASSERT_TRUE(Save(folder_.path(), step, TwoRanks(), static_cast<uint64_t>(step)).ok());
    }
    newest_ = StepPath(folder_.path(), 30);
  }
  void ExpectFallsBackTo(int64_t step, const std::string& reason) {
    std::vector<std::string> warnings;
    const auto found = FindNewestGood(folder_.path(), &warnings);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(found->step, step);
    EXPECT_THAT(warnings, ElementsAre(testing::AllOf(HasSubstr("step 30"), HasSubstr(reason))));
    ExpectContents(*CheckpointReader::Open(found->path), TwoRanksWhole(), static_cast<uint64_t>(step));
  }
  TempFolder folder_;
  std::string newest_;
};

TEST_F(FallBack, NothingDamagedIsNoWarning) {
  std::vector<std::string> warnings;
  EXPECT_EQ(FindNewestGood(folder_.path(), &warnings)->step, 30);
  EXPECT_THAT(warnings, IsEmpty());
}

TEST_F(FallBack, FlippedBit) {
  std::string contents = ReadOrDie(newest_ + "/rank-00001.safetensors");
  contents.back() ^= 1;
  WriteOrDie(newest_ + "/rank-00001.safetensors", contents);
  ExpectFallsBackTo(20, "rank-00001.safetensors: damaged: chunk 0");
}

TEST_F(FallBack, TruncatedRankFile) {
  const std::string file = newest_ + "/rank-00000.safetensors";
  ASSERT_EQ(::truncate(file.c_str(), *FileBytes(file) - 1), 0);
  ExpectFallsBackTo(20, "rank-00000.safetensors: damaged: it has");
}

TEST_F(FallBack, MissingRankFile) {
  ASSERT_EQ(::unlink((newest_ + "/rank-00001.safetensors").c_str()), 0);
  ExpectFallsBackTo(20, "rank-00001.safetensors is missing");
}

TEST_F(FallBack, MissingManifest) {
  ASSERT_EQ(::unlink((newest_ + "/manifest.json").c_str()), 0);
  ExpectFallsBackTo(20, "it does not contain manifest.json");
}

TEST_F(FallBack, EmptyManifest) {
  WriteOrDie(newest_ + "/manifest.json", "");
  ExpectFallsBackTo(20, "manifest.json: truncated");
}

TEST_F(FallBack, ACheckpointUnderAnotherStepsName) {
  ASSERT_TRUE(RemoveAll(newest_).ok());
  ASSERT_EQ(::rename(StepPath(folder_.path(), 10).c_str(), newest_.c_str()), 0);
  ExpectFallsBackTo(20, "contains step 10, not 30");
}

TEST_F(FallBack, AllDamagedIsAnErrorThatSaysWhy) {
  for (int64_t step : {10, 20, 30}) WriteOrDie(StepPath(folder_.path(), step) + "/manifest.json", "{}");
  std::vector<std::string> warnings;
  const auto found = FindNewestGood(folder_.path(), &warnings);
  EXPECT_EQ(ExitCodeFor(found.status()), ExitCode::kBadData);
  EXPECT_THAT(std::string(found.status().message()), HasSubstr("step-00000030/manifest.json"));
  EXPECT_EQ(warnings.size(), 3u);
}

TEST_F(FallBack, NoneIsNotFound) {
  EXPECT_EQ(FindNewestGood(folder_.path() + "/none", nullptr).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(FallBack, ForeignNamesAreNotCheckpoints) {
  for (const char* name :
       {"step-31", "step-00000031x", "step-", "step-0000000031", "step-99999999999999999999", "notes"}) {
    ASSERT_TRUE(MakeDirs(folder_.path() + "/" + name).ok());
  }
  WriteOrDie(folder_.path() + "/step-00000040", "a file");
  EXPECT_EQ(ListCheckpoints(folder_.path())->size(), 3u);
  ASSERT_TRUE(ApplyRetention(folder_.path(), {1, 0}).ok());
  EXPECT_TRUE(PathExists(folder_.path() + "/notes"));
}

std::vector<int64_t> StepsIn(const std::string& root) {
  std::vector<int64_t> steps;
  const auto list = ListCheckpoints(root);
  for (const CheckpointInfo& info : *list) steps.push_back(info.step);
  return steps;
}

TEST_F(FallBack, RetentionKeepsTheNewestAndTheMultiples) {
  ASSERT_TRUE(Save(folder_.path(), 40, TwoRanks(), 1).ok());
  ASSERT_TRUE(MakeDirs(folder_.path() + "/.tmp-step-00000050").ok());
  ASSERT_TRUE(ApplyRetention(folder_.path(), {2, 0}, 40).ok());
  EXPECT_THAT(StepsIn(folder_.path()), ElementsAre(30, 40));
  EXPECT_FALSE(PathExists(folder_.path() + "/.tmp-step-00000050"));
  ASSERT_TRUE(Save(folder_.path(), 50, TwoRanks(), 1).ok());
  ASSERT_TRUE(ApplyRetention(folder_.path(), {1, 30}, 50).ok());
  EXPECT_THAT(StepsIn(folder_.path()), ElementsAre(30, 50));
  EXPECT_EQ(ExitCodeFor(ApplyRetention(folder_.path(), {0, 0})), ExitCode::kUsage);
}

TEST_F(FallBack, RetentionKeepsTheOneWithTheLowestLoss) {
  ASSERT_TRUE(Save(folder_.path(), 40, TwoRanks(), 1).ok());
  // 15 is no longer there, and 40 is not evaluated yet.
  ASSERT_TRUE(ApplyRetention(folder_.path(),
                             {.keep = 1, .losses = {{10, 2.5}, {15, 1.0}, {20, 2.25}, {30, 2.25}}}, 40)
                  .ok());
  EXPECT_THAT(StepsIn(folder_.path()), ElementsAre(20, 40));
  ASSERT_TRUE(Save(folder_.path(), 50, TwoRanks(), 1).ok());
  ASSERT_TRUE(
      ApplyRetention(folder_.path(), {.keep = 1, .losses = {{20, 2.25}, {30, 2.25}, {40, std::nan("")}}}, 50)
          .ok());
  EXPECT_THAT(StepsIn(folder_.path()), ElementsAre(20, 50));
}

TEST_F(FallBack, RetentionNeverRemovesTheNewestGoodOne) {
  std::string contents = ReadOrDie(newest_ + "/rank-00000.safetensors");
  contents.back() ^= 1;  // opens well; only reading it tells
  WriteOrDie(newest_ + "/rank-00000.safetensors", contents);
  ASSERT_TRUE(ApplyRetention(folder_.path(), {1, 0}).ok());
  EXPECT_THAT(StepsIn(folder_.path()), ElementsAre(20, 30));
  EXPECT_EQ(FindNewestGood(folder_.path(), nullptr)->step, 20);
  // After going on from 20, a save at 25 makes 20 unneeded; 30 is still ahead and damaged.
  ASSERT_TRUE(Save(folder_.path(), 25, TwoRanks(), 1).ok());
  ASSERT_TRUE(ApplyRetention(folder_.path(), {1, 0}, 25).ok());
  EXPECT_THAT(StepsIn(folder_.path()), ElementsAre(25, 30));
  ASSERT_TRUE(Save(folder_.path(), 30, TwoRanks(), 31).ok());
  EXPECT_EQ(FindNewestGood(folder_.path(), nullptr)->step, 30);
  ASSERT_TRUE(ApplyRetention(folder_.path(), {1, 0}, 30).ok());
  EXPECT_THAT(StepsIn(folder_.path()), ElementsAre(30));
}

TEST_F(FallBack, SavingAStepAgainReplacesItAndLeavesNothingBehind) {
  ASSERT_TRUE(Save(folder_.path(), 30, TwoRanks(), 77).ok());
  ExpectContents(*CheckpointReader::Open(newest_), TwoRanksWhole(), 77);
  EXPECT_FALSE(PathExists(folder_.path() + "/.tmp-step-00000030"));
  EXPECT_FALSE(PathExists(newest_ + "/rank-00000.index.json"));
}

// Hostile rather than damaged: sealed with a right checksum.
TEST(CheckpointManifest, SealedNonsenseIsRefused) {
  const std::string checksum(16, '0');
  const auto refuses = [&](const std::string& body, const std::string& reason) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%016llx",
                  static_cast<unsigned long long>(ChecksumXxh3(body.data(), body.size())));
    const auto manifest = ParseManifest(body + ",\"manifest_xxh3\":\"" + digits + "\"}\n", "m");
    EXPECT_EQ(ExitCodeFor(manifest.status()), ExitCode::kBadData) << manifest.status();
    EXPECT_THAT(std::string(manifest.status().message()), HasSubstr(reason));
  };
  const std::string head = R"({"format":"trainctl.checkpoint.v2","step":1,"world_size":1,"state":{},)";
  const auto file = [&](const std::string& name, int64_t size, int64_t data, int64_t chunk, int chunks) {
    std::string all;
    for (int i = 0; i < chunks; ++i) all += checksum;
    return absl::StrCat(R"("files":[{"name":")", name, R"(","size_bytes":)", size, R"(,"data_offset":)", data,
                        R"(,"chunk_bytes":)", chunk, R"(,"chunk_xxh3":")", all, R"("}],)");
  };
  const std::string good_file = file("rank-00000.safetensors", 108, 8, 4096, 1);
  const auto tensor = [](const std::string& shape, const std::string& pieces) {
    return absl::StrCat(R"({"name":"w","dtype":"F32","shape":)", shape, R"(,"pieces":)", pieces, "}");
  };
  refuses("x", "not valid JSON");
  refuses("[1", "not valid JSON");
  refuses(R"({"format":"other.v1")", "not a checkpoint format");
  refuses(R"({"format":"trainctl.checkpoint.v0")", "not a checkpoint format");
  refuses(head + file("../../etc/passwd", 108, 8, 4096, 1) + "\"tensors\":[]", "should be 'rank-00000");
  refuses(head + file("rank-00000.safetensors", 108, 8, 0, 1) + "\"tensors\":[]", "chunk_bytes 0");
  refuses(head + file("rank-00000.safetensors", 108, 8, 5000, 1) + "\"tensors\":[]", "chunk_bytes 5000");
  refuses(head + file("rank-00000.safetensors", 108, 8, int64_t{1} << 40, 1) + "\"tensors\":[]",
          "chunk_bytes");
  refuses(head + file("rank-00000.safetensors", INT64_MAX, 8, 4096, 1) + "\"tensors\":[]", "1 checksums for");
  refuses(head + file("rank-00000.safetensors", -5, 8, 4096, 0) + "\"tensors\":[]", "data_offset");
  refuses(head + file("rank-00000.safetensors", 108, 200, 4096, 1) + "\"tensors\":[]", "data_offset 200");
  const auto with = [&](const std::string& tensors) {
    return head + good_file + "\"tensors\":[" + tensors + "]";
  };
  refuses(with(tensor("[25]", "[[1,0,[[0,25]]]]")), "names file 1 of 1");
  refuses(with(tensor("[25]", "[[4294967296,0,[[0,25]]]]")), "names file 4294967296");
  refuses(with(tensor("[25]", "[[0,4,[[0,25]]]]")), "do not lie within the 100 data bytes");
  refuses(with(tensor("[25]", "[[0,9223372036854775804,[[0,25]]]]")), "do not lie within");
  refuses(with(tensor("[24]", "[[0,2,[[0,24]]]]")), "do not lie within");
  refuses(with(tensor("[25]", "[[0,0,[[0,10]]]]")), "the pieces cover 10 of its 25 elements");
  refuses(with(tensor("[25]", "[[0,0,[[0,10]]],[0,36,[[9,25]]]]")), "exactly once");
  refuses(with(tensor("[25]", "[[0,0,[[1,25]]]]")), "the pieces cover 24 of its 25 elements");
  refuses(with(tensor("[10]", "[[0,0,[[0,25]]]]")), "[0:25] does not lie within [10]");
  refuses(with(tensor("[10]", "[[0,0,[[5,4]]]]")), "[5:4] does not lie within [10]");
  refuses(with(tensor("[5,5]", "[[0,0,[[0,25]]]]")), "[0:25] does not lie within [5, 5]");
  refuses(with(tensor("[25]", "[[0,0,[[0,0]]],[0,0,[[0,25]]]]")), "exactly once");
  refuses(with(tensor("[5,5]", "[[0,0,[[0,3],[0,5]]],[0,0,[[2,4],[0,5]]]]")), "exactly once");
  refuses(with(tensor("[5,4]", "[[0,0,[[0,3],[0,4]]],[0,0,[[2,4],[0,4]]]]")),
          "(at [0:3, 0:4] and [2:4, 0:4])");
  refuses(with(tensor("[25]", "[[0,0,[[-1,25]]]]")), "other than whole numbers");
  refuses(with(tensor("[25]", "[[0,0,[[0,25,1]]]]")), "does not consist of 2 numbers");
  refuses(with(tensor("[25]", "[[0,0]]")), "a piece is not [file, offset_bytes, box]");
  refuses(with(tensor("[25]", "[[0,0,25]]")), "a piece has no box");
  refuses(
      with(tensor("[1" + absl::StrCat(absl::StrReplaceAll(std::string(40, '1'), {{"1", ",1"}})) + "]", "[]")),
      "has 41 dimensions");
  refuses(with(tensor("[4294967296,4294967296]", "[]")), "more than 2^63");
  refuses(with(tensor("[0]", "[]") + "," + tensor("[0]", "[]")), "listed twice");
}

}  // namespace
}  // namespace trainctl::checkpoint
