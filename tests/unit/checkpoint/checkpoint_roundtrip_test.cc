// What one layout writes another reads.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/checkpoint/checkpoint_test_util.h"

namespace trainctl::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr DType kDTypes[] = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16, DType::kI64,
                             DType::kI32, DType::kU16, DType::kU8,   DType::kBool};

// Cuts [0, count) at random places and deals the parts to `num_owners`.
std::vector<std::vector<Slice>> RandomCuts(const std::vector<Slice>& tensors, int num_owners, uint64_t seed) {
  std::vector<std::vector<Slice>> owned(num_owners);
  uint64_t draw = 0;
  const auto below = [&](uint64_t bound) { return RandomBelow(seed, 77, draw++, bound); };
  for (const Slice& tensor : tensors) {
    std::vector<int64_t> cuts = {0, tensor.count};
    for (uint64_t i = below(5); i > 0; --i) cuts.push_back(static_cast<int64_t>(below(tensor.count + 1)));
    std::sort(cuts.begin(), cuts.end());
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      Slice part = tensor;
      part.begin = cuts[i];
      part.count = cuts[i + 1] - cuts[i];
      if (part.count > 0 || tensor.count == 0) owned[below(num_owners)].push_back(part);
    }
  }
  return owned;
}

TEST(CheckpointRoundTrip, AnyCutsOverWritersAreReadBackByAnyOtherCuts) {
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    SCOPED_TRACE(seed);
    TempFolder folder;
    uint64_t draw = 0;
    const auto below = [&](uint64_t bound) { return RandomBelow(seed, 5, draw++, bound); };
    std::vector<Slice> tensors;
    for (uint64_t i = 0, count = 1 + below(12); i < count; ++i) {
      std::vector<int64_t> shape;
      for (uint64_t dim = below(4); dim > 0; --dim) shape.push_back(static_cast<int64_t>(below(30)));
      tensors.push_back(Whole(absl::StrCat("layer.", i, "/\"quoted\" ü"), kDTypes[below(9)], shape));
    }
    // One of several chunks, so that ranges begin and end inside chunks.
    tensors.push_back(Whole("large", kDTypes[below(9)], {3, 150'000 + static_cast<int64_t>(below(50'000))}));
    const std::string root = folder.path() + "/run/checkpoints";
    const absl::Status saved = Save(root, 7, RandomCuts(tensors, 1 + static_cast<int>(below(5)), seed), seed);
    ASSERT_TRUE(saved.ok()) << saved;

    const auto reader = CheckpointReader::Open(StepPath(root, 7));
    ASSERT_TRUE(reader.ok()) << reader.status();
    EXPECT_EQ(reader->tensors().size(), tensors.size());
    EXPECT_TRUE(reader->Verify().ok());
    for (const std::vector<Slice>& slices :
         RandomCuts(tensors, 1 + static_cast<int>(below(5)), seed + 1000)) {
      ExpectContents(*reader, slices, seed);
    }
  }
}

TEST(CheckpointRoundTrip, StateAndTensorListComeBack) {
  TempFolder folder;
  const std::string state = R"({"rng":18446744073709551615,"lr":0.1,"names":["a","ü"],"deep":{"x":[1,2]}})";
  const std::vector<Slice> tensors = {Whole("w", DType::kBF16, {4, 3}), Whole("scalar", DType::kF32, {}),
                                      Whole("empty", DType::kF32, {0, 5})};
  ASSERT_TRUE(Save(folder.path(), 3, {tensors}, 1, nullptr, state).ok());
  const auto reader = CheckpointReader::Open(StepPath(folder.path(), 3));
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(reader->meta().step, 3);
  EXPECT_EQ(reader->meta().state_json, state);
  EXPECT_EQ(reader->world_size(), 1);
  ASSERT_NE(reader->Find("empty"), nullptr);
  EXPECT_EQ(reader->Find("empty")->count, 0);
  EXPECT_THAT(reader->Find("w")->shape, ElementsAre(4, 3));
  EXPECT_EQ(reader->Find("scalar")->count, 1);
  EXPECT_EQ(reader->Find("none"), nullptr);
}

TEST(CheckpointRoundTrip, TheSameSaveGivesTheSameBytes) {
  TempFolder folder;
  const std::vector<std::vector<Slice>> slices =
      RandomCuts({Whole("a", DType::kF32, {100}), Whole("b", DType::kBF16, {7, 9})}, 3, 9);
  ASSERT_TRUE(Save(folder.path() + "/x", 1, slices, 4).ok());
  ASSERT_TRUE(Save(folder.path() + "/y", 1, slices, 4).ok());
  for (const char* name : {"manifest.json", "rank-00000.safetensors", "rank-00002.safetensors"}) {
    const auto x = ReadFile(StepPath(folder.path() + "/x", 1) + "/" + name);
    const auto y = ReadFile(StepPath(folder.path() + "/y", 1) + "/" + name);
    ASSERT_TRUE(x.ok() && y.ok());
    EXPECT_EQ(*x, *y) << name;
  }
}

TEST(CheckpointRoundTrip, AGapAnOverlapAndADisagreementAreRefusedByName) {
  TempFolder folder;
  const Slice whole = Whole("layers.0.weight", DType::kF32, {10});
  const auto part = [&](int64_t begin, int64_t count) {
    Slice slice = whole;
    slice.begin = begin;
    slice.count = count;
    return slice;
  };
  const auto refused = [&](const std::vector<std::vector<Slice>>& slices) {
    const absl::Status status = Save(folder.path(), 1, slices, 1);
    EXPECT_EQ(ExitCodeFor(status), ExitCode::kInternal) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("'layers.0.weight'"));
    EXPECT_TRUE(ListCheckpoints(folder.path())->empty());
    return std::string(status.message());
  };
  EXPECT_THAT(refused({{part(0, 4)}, {part(5, 5)}}), HasSubstr("no rank wrote the elements from 4"));
  EXPECT_THAT(refused({{part(0, 4)}, {part(4, 5)}}), HasSubstr("no rank wrote the elements from 9"));
  EXPECT_THAT(refused({{part(1, 4)}, {part(5, 5)}}), HasSubstr("no rank wrote the elements from 0"));
  EXPECT_THAT(refused({{part(0, 6)}, {part(5, 5)}}),
              HasSubstr("[5, 6) were written by both rank 0 and rank 1"));
  EXPECT_THAT(refused({{part(0, 10)}, {part(0, 10)}}), HasSubstr("both rank 0 and rank 1"));
  EXPECT_THAT(refused({{part(0, 5)}, {Slice{whole.name, DType::kF32, {5, 2}, 5, 5}}}), HasSubstr("[5, 2]"));
  EXPECT_THAT(refused({{part(8, 3)}}), HasSubstr("does not lie within [10]"));
  EXPECT_THAT(refused({{part(-1, 3)}}), HasSubstr("does not lie within [10]"));
  EXPECT_TRUE(Save(folder.path(), 1, {{part(0, 5)}, {part(5, 5)}}, 1).ok());
}

TEST(CheckpointRoundTrip, ReadingWithAnotherTypeOrShapeOrBeyondTheEndIsRefused) {
  TempFolder folder;
  ASSERT_TRUE(Save(folder.path(), 1, {{Whole("w", DType::kF32, {10})}}, 1).ok());
  const auto reader = CheckpointReader::Open(StepPath(folder.path(), 1));
  ASSERT_TRUE(reader.ok());
  const auto read = [&](const Slice& slice) {
    return reader->Read({slice}, [](const Slice&, absl::Span<const std::byte>) {
      ADD_FAILURE() << "bytes were handed out";
      return absl::OkStatus();
    });
  };
  EXPECT_EQ(ExitCodeFor(read(Whole("w", DType::kBF16, {10}))), ExitCode::kBadData);
  EXPECT_EQ(ExitCodeFor(read(Whole("w", DType::kF32, {5, 2}))), ExitCode::kBadData);
  EXPECT_EQ(ExitCodeFor(read(Whole("v", DType::kF32, {10}))), ExitCode::kBadData);
  EXPECT_EQ(ExitCodeFor(read(Slice{"w", DType::kF32, {10}, 8, 3})), ExitCode::kInternal);
}

TEST(CheckpointRoundTrip, AnErrorOfTheCallersReaderEndsTheSave) {
  TempFolder folder;
  CheckpointWriter writer(folder.path(), 1, 0, 1);
  ASSERT_TRUE(writer.Begin().ok());
  const absl::Status status =
      writer.Write({Whole("w", DType::kF32, {10})},
                   [](const Slice&, absl::Span<std::byte>) { return InternalError("device lost"); });
  EXPECT_EQ(status.message(), "device lost");
  EXPECT_FALSE(writer.Commit({1, "{}"}).ok());
  EXPECT_TRUE(ListCheckpoints(folder.path())->empty());
}

TEST(CheckpointRoundTrip, CommitTwiceIsOnce) {
  TempFolder folder;
  CheckpointWriter writer(folder.path(), 1, 0, 1);
  ASSERT_TRUE(writer.Begin().ok());
  ASSERT_TRUE(writer.Write({Whole("w", DType::kF32, {10})}, ContentsOf(2)).ok());
  EXPECT_TRUE(writer.Commit({1, "{}"}).ok());
  EXPECT_TRUE(writer.Commit({1, "{}"}).ok());
  EXPECT_TRUE(CheckpointReader::Open(StepPath(folder.path(), 1))->Verify().ok());
}

}  // namespace
}  // namespace trainctl::checkpoint
