// Checkpoints of format 1, whose pieces are ranges of the flattened tensor, load as they did.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "checkpoint/block_writer.h"
#include "checkpoint/manifest.h"
#include "tests/unit/checkpoint/checkpoint_test_util.h"

namespace trainctl::checkpoint {
namespace {

using testing::HasSubstr;

// Elements [begin, end) of a flattened tensor.
struct Range {
  Slice tensor;
  int64_t begin = 0;
  int64_t end = 0;
};

std::string Checksum(absl::string_view bytes) {
  return absl::StrFormat("%016x", ChecksumXxh3(bytes.data(), bytes.size()));
}

std::string ManifestOf(absl::string_view body) {
  return absl::StrCat(body, ",\"manifest_xxh3\":\"", Checksum(body), "\"}\n");
}

// The writer of format 1, in short: one file per rank with its ranges one after another, and the manifest.
void SaveRanges(const std::string& folder, const std::vector<std::vector<Range>>& ranks, uint64_t seed) {
  ASSERT_TRUE(MakeDirs(folder).ok());
  std::vector<std::string> files, names;
  std::map<std::string, std::pair<Slice, std::map<int64_t, std::string>>> tensors;  // pieces by begin
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    std::vector<TensorInfo> entries;
    for (const Range& range : ranks[rank]) {
      const std::string name = absl::StrCat(range.tensor.name, "[", range.begin, ":", range.end, "]");
      entries.push_back({name, range.tensor.dtype, {range.end - range.begin}});
    }
    std::string file = *FormatSafetensorsHeader({}, entries);
    const size_t data_offset = file.size();
    for (size_t i = 0; i < entries.size(); ++i) {
      const Range& range = ranks[rank][i];
      const int64_t width = DTypeBytes(range.tensor.dtype);
      for (int64_t k = range.begin * width; k < range.end * width; ++k)
        file += static_cast<char>(ExpectedByte(seed, StreamOf(range.tensor.name), k));
      auto& [tensor, pieces] = tensors[range.tensor.name];
      tensor = range.tensor;
      pieces[range.begin] = absl::StrFormat("[%d,%d,%d,%d]", rank, range.begin, range.end - range.begin,
                                            entries[i].offset_bytes);
    }
    std::string checksums;
    for (size_t at = 0; at < file.size(); at += 4096)
      checksums += Checksum(absl::string_view(file).substr(at, 4096));
    files.push_back(absl::StrFormat(
        R"({"name":"%s","size_bytes":%d,"data_offset":%d,"chunk_bytes":4096,"chunk_xxh3":"%s"})",
        RankFileName(static_cast<int>(rank)), file.size(), data_offset, checksums));
    WriteOrDie(folder + "/" + RankFileName(static_cast<int>(rank)), file);
  }
  std::vector<std::string> entries;
  for (const auto& [name, entry] : tensors) {
    const auto& [tensor, pieces] = entry;
    entries.push_back(absl::StrFormat(
        R"({"name":"%s","dtype":"%s","shape":[%s],"pieces":[%s]})", name, DTypeName(tensor.dtype),
        absl::StrJoin(tensor.shape, ","),
        absl::StrJoin(pieces, ",", [](std::string* out, const auto& piece) { *out += piece.second; })));
  }
  WriteOrDie(folder + "/manifest.json",
             ManifestOf(absl::StrFormat(
                 R"({"format":"trainctl.checkpoint.v1","step":7,"world_size":%d,"state":{"tokens":5},)"
                 R"("files":[%s],"tensors":[%s])",
                 ranks.size(), absl::StrJoin(files, ","), absl::StrJoin(entries, ","))));
}

class OlderFormat : public testing::Test {
 protected:
  // Ranges that begin and end within rows, in two files.
  void SetUp() override {
    SaveRanges(path_, {{{matrix_, 0, 1234}, {cube_, 0, 7}}, {{matrix_, 1234, 3000}, {cube_, 7, 24}}}, 3);
  }
  const Slice matrix_ = Whole("matrix", DType::kF32, {60, 50});
  const Slice cube_ = Whole("cube", DType::kBF16, {2, 3, 4});
  TempFolder folder_;
  const std::string path_ = StepPath(folder_.path(), 7);
};

TEST_F(OlderFormat, IsReadByAnyBoxes) {
  const auto reader = CheckpointReader::Open(path_);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(reader->meta().step, 7);
  EXPECT_EQ(reader->meta().state_json, R"({"tokens":5})");
  EXPECT_TRUE(reader->Verify().ok());
  ExpectContents(*reader, {matrix_, cube_}, 3);
  Slice columns = matrix_, corner = cube_;
  columns.box = {{{5, 58}, {7, 31}}};
  corner.box = {{{0, 2}, {1, 3}, {0, 3}}};
  ExpectContents(*reader, {columns, corner}, 3);
}

TEST_F(OlderFormat, IsTheNewestGoodOneAndFallsBackWhenDamaged) {
  EXPECT_EQ(FindNewestGood(folder_.path(), nullptr)->step, 7);
  ASSERT_TRUE(Save(folder_.path(), 9, TwoRanks(), 1).ok());
  EXPECT_EQ(FindNewestGood(folder_.path(), nullptr)->step, 9);
  WriteOrDie(StepPath(folder_.path(), 9) + "/manifest.json", "");
  EXPECT_EQ(FindNewestGood(folder_.path(), nullptr)->step, 7);
  std::string contents = ReadOrDie(path_ + "/rank-00001.safetensors");
  contents[contents.size() / 2] ^= 1;
  WriteOrDie(path_ + "/rank-00001.safetensors", contents);
  EXPECT_EQ(ExitCodeFor(FindNewestGood(folder_.path(), nullptr).status()), ExitCode::kBadData);
}

TEST(OlderManifest, RangesThatDoNotCoverTheTensorAreRefused) {
  const auto refuses = [](const std::string& shape, const std::string& pieces, const std::string& reason) {
    const auto manifest = ParseManifest(
        ManifestOf(absl::StrCat(
            R"({"format":"trainctl.checkpoint.v1","step":1,"world_size":1,"state":{},)",
            R"("files":[{"name":"rank-00000.safetensors","size_bytes":108,"data_offset":8,"chunk_bytes":4096,)",
            R"("chunk_xxh3":"0000000000000000"}],"tensors":[{"name":"w","dtype":"F32","shape":)", shape,
            R"(,"pieces":)", pieces, "}]")),
        "m");
    EXPECT_EQ(ExitCodeFor(manifest.status()), ExitCode::kBadData) << manifest.status();
    EXPECT_THAT(std::string(manifest.status().message()), HasSubstr(reason));
  };
  refuses("[25]", "[[1,0,25,0]]", "names file 1 of 1");
  refuses("[25]", "[[0,0,25,4]]", "do not lie within the 100 data bytes");
  refuses("[5,5]", "[[0,0,25,9223372036854775804]]", "does not lie within a file");
  refuses("[24]", "[[0,0,24,2]]", "do not lie within");
  refuses("[5,5]", "[[0,0,10,0]]", "the pieces cover 10 of its 25 elements");
  refuses("[5,5]", "[[0,0,10,0],[0,9,16,36]]", "exactly once");
  refuses("[25]", "[[0,1,24,0]]", "the pieces cover 24 of its 25 elements");
  refuses("[10]", "[[0,0,25,0]]", "does not lie within [10]");
  refuses("[25]", "[[0,0,0,0],[0,0,25,0]]", "a piece of 0 elements");
  refuses("[25]", "[[0,-1,25,0]]", "other than whole numbers");
  refuses("[25]", "[[0,0,[[0,25]]]]", "does not consist of 4 numbers");
}

}  // namespace
}  // namespace trainctl::checkpoint
