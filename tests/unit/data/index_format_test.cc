// The expected bytes are put together here from the description of the format, not by the writer.
#include "data/index_format.h"

#include <gmock/gmock.h>

#include <fstream>
#include <sstream>

#include "base/status.h"
#include "data/indexed_dataset.h"
#include "data/indexed_writer.h"
#include "tests/unit/data/data_test_util.h"

namespace trainctl::data {
namespace {

using testing::HasSubstr;

void PutLittleEndian(std::string& out, uint64_t value, int num_bytes) {
  for (int i = 0; i < num_bytes; ++i) out.push_back(static_cast<char>((value >> (8 * i)) & 0xff));
}

struct IndexParts {
  std::string magic = std::string("MMIDIDX\0\0", 9);
  uint64_t version = 1;
  uint8_t dtype = 8;  // uint16
  std::vector<int64_t> lengths = {3, 2, 4};
  std::vector<int64_t> pointers = {0, 6, 10};
  std::vector<int64_t> documents = {0, 2, 2, 3};  // the first has two sequences, the second none
  std::optional<uint64_t> sequence_count, document_count;

  std::string Bytes() const {
    std::string out = magic;
    PutLittleEndian(out, version, 8);
    PutLittleEndian(out, dtype, 1);
    PutLittleEndian(out, sequence_count.value_or(lengths.size()), 8);
    PutLittleEndian(out, document_count.value_or(documents.size()), 8);
    for (const int64_t length : lengths) PutLittleEndian(out, static_cast<uint64_t>(length), 4);
    for (const int64_t pointer : pointers) PutLittleEndian(out, static_cast<uint64_t>(pointer), 8);
    for (const int64_t document : documents) PutLittleEndian(out, static_cast<uint64_t>(document), 8);
    return out;
  }
};

absl::StatusOr<IndexView> Parse(const std::string& bytes, int64_t data_bytes = 18) {
  return IndexView::Parse(absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()),
                          "x.idx", data_bytes);
}

TEST(IndexFormat, AHandBuiltIndexIsRead) {
  const std::string bytes = IndexParts().Bytes();
  const absl::StatusOr<IndexView> view = Parse(bytes);
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_EQ(view->token_type(), TokenType::kU16);
  EXPECT_EQ(view->num_sequences(), 3);
  EXPECT_EQ(view->num_documents(), 3);
  EXPECT_EQ(view->num_tokens(), 9);
  EXPECT_EQ(view->DocumentTokens(0), 5);
  EXPECT_EQ(view->DocumentTokens(1), 0);
  EXPECT_EQ(view->DocumentTokens(2), 4);
  EXPECT_EQ(view->DocumentOffset(2), 10);
}

TEST(IndexFormat, EveryWrongFieldIsNamed) {
  struct Case {
    void (*change)(IndexParts&);
    const char* message;
  };
  const std::vector<Case> cases = {
      {[](IndexParts& p) { p.magic[0] = 'X'; }, "x.idx: magic"},
      {[](IndexParts& p) { p.version = 2; }, "x.idx: version: 2"},
      {[](IndexParts& p) { p.dtype = 0; }, "dtype: code 0"},
      {[](IndexParts& p) { p.dtype = 6; }, "dtype: code 6"},
      {[](IndexParts& p) { p.dtype = 9; }, "dtype: code 9"},
      {[](IndexParts& p) { p.sequence_count = ~uint64_t{0}; }, "sequence count"},
      {[](IndexParts& p) { p.sequence_count = 0x1555555555555556; }, "sequence count"},  // x 12 overflows
      {[](IndexParts& p) { p.sequence_count = 2; }, "2 sequences"},
      {[](IndexParts& p) { p.document_count = ~uint64_t{0}; }, "document count"},
      {[](IndexParts& p) { p.document_count = 0; }, "document count: 0"},
      {[](IndexParts& p) { p.lengths[1] = -2; }, "length of sequence 1: -2"},
      {[](IndexParts& p) { p.lengths[2] = 0x7fffffff; }, "sequence 2 ends at byte"},
      {[](IndexParts& p) { p.lengths[2] = 3; }, "covers 16 bytes of a data file of 18"},
      {[](IndexParts& p) { p.pointers[1] = 4; }, "pointer of sequence 1: 4"},
      {[](IndexParts& p) { p.pointers[0] = -6; }, "pointer of sequence 0: -6"},
      {[](IndexParts& p) { p.pointers[2] = INT64_MAX; }, "pointer of sequence 2"},
      {[](IndexParts& p) { p.documents[0] = 1; }, "document index 0: 1"},
      {[](IndexParts& p) { p.documents[2] = 1; }, "document index 2: 1"},
      {[](IndexParts& p) { p.documents[1] = 4; }, "document index 1: 4"},
      {[](IndexParts& p) { p.documents[1] = -1; }, "document index 1: -1"},
      {[](IndexParts& p) { p.documents[3] = 2; }, "document index 3"},
  };
  for (const Case& c : cases) {
    IndexParts parts;
    c.change(parts);
    const absl::Status status = Parse(parts.Bytes()).status();
    EXPECT_THAT(status.message(), HasSubstr(c.message));
    EXPECT_EQ(ExitCodeFor(status), ExitCode::kBadData);
  }
}

TEST(IndexFormat, EveryTruncationAndExtensionIsRefused) {
  const std::string bytes = IndexParts().Bytes();
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(Parse(bytes.substr(0, length)).ok()) << length;
  }
  EXPECT_FALSE(Parse(bytes + '\0').ok());
  EXPECT_FALSE(Parse(bytes, 17).ok());
  EXPECT_FALSE(Parse(bytes, 19).ok());
}

std::string Contents(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

using IndexedFiles = DataTest;

TEST_F(IndexedFiles, TheWriterWritesTheFormatByteForByte) {
  auto writer = IndexedWriter::Create(Path("d"), TokenType::kU16);
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->Append({1, 2}).ok());
  ASSERT_TRUE((*writer)->Append({300}).ok());
  (*writer)->EndDocument();
  (*writer)->EndDocument();
  const uint8_t bytes[] = {7, 255};
  ASSERT_TRUE((*writer)->AppendBytes(bytes).ok());
  (*writer)->EndDocument();
  ASSERT_TRUE((*writer)->Finish().ok());

  IndexParts parts;
  parts.lengths = {3, 2};
  parts.pointers = {0, 6};
  parts.documents = {0, 1, 1, 2};
  EXPECT_EQ(Contents(Path("d.idx")), parts.Bytes());
  EXPECT_EQ(Contents(Path("d.bin")), std::string("\x01\0\x02\0\x2c\x01\x07\0\xff\0", 10));
}

TEST_F(IndexedFiles, AWriterThatDoesNotFinishLeavesNothingAndReplacesNothing) {
  WriteIndexed("d", {{1, 2, 3}});
  const std::string before = Contents(Path("d.idx"));
  {
    auto writer = IndexedWriter::Create(Path("d"), TokenType::kI32);
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE((*writer)->Append({9}).ok());
  }
  EXPECT_EQ(Contents(Path("d.idx")), before);
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(Path("."))) ++files;
  EXPECT_EQ(files, 2u);
}

TEST_F(IndexedFiles, ATokenThatDoesNotFitTheTypeIsRefused) {
  auto writer = IndexedWriter::Create(Path("d"), TokenType::kU8);
  ASSERT_TRUE(writer.ok());
  EXPECT_THAT((*writer)->Append({1, 256}).message(), HasSubstr("token 256 does not fit in uint8"));
  EXPECT_FALSE((*writer)->Append({-1}).ok());
  EXPECT_FALSE(IndexedWriter::Create(Path("d"), TokenType::kI64).ok());
  EXPECT_THAT(IndexedWriter::Create(Path("no/such/d"), TokenType::kU8).status().message(),
              HasSubstr("no/such/d"));
}

TEST_F(IndexedFiles, EachTokenTypeIsRead) {
  // The same tokens 1, 2, 100 in every type.
  const std::vector<std::pair<int, int>> code_and_bytes = {{1, 1}, {2, 1}, {3, 2}, {4, 4}, {5, 8}, {8, 2}};
  for (const auto& [code, num_bytes] : code_and_bytes) {
    std::string data;
    for (const uint64_t token : {1, 2, 100}) PutLittleEndian(data, token, num_bytes);
    IndexParts parts;
    parts.dtype = static_cast<uint8_t>(code);
    parts.lengths = {3};
    parts.pointers = {0};
    parts.documents = {0, 1};
    Write("t.bin", data);
    Write("t.idx", parts.Bytes());
    const auto dataset = IndexedDataset::Open(Path("t"));
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    std::vector<int32_t> tokens(2);
    ASSERT_TRUE(dataset->Read(0, 1, 2, 101, tokens.data()).ok());
    EXPECT_EQ(tokens, (std::vector<int32_t>{2, 100})) << "dtype " << code;
    const absl::Status outside = dataset->Read(0, 1, 2, 100, tokens.data());
    EXPECT_THAT(outside.message(),
                HasSubstr("t.bin: document 0, position 2: token 100 is outside the vocabulary of 100"));
    EXPECT_EQ(ExitCodeFor(outside), ExitCode::kBadData);
    int64_t read_bytes = 0;
    EXPECT_TRUE(dataset->CheckTokens(101, [&](int64_t bytes) { read_bytes += bytes; }).ok());
    EXPECT_EQ(read_bytes, static_cast<int64_t>(data.size()));
    EXPECT_EQ(dataset->CheckTokens(100, {}), outside);
  }
}

TEST_F(IndexedFiles, TheFirstTokenOutsideIsFoundInAnyPiece) {
  std::vector<std::vector<int32_t>> documents(5, std::vector<int32_t>(2'000'000, 7));
  documents[3][1'999'999] = 300;  // in the second piece
  documents[4][5] = 400;
  WriteIndexed("t", documents);
  const auto dataset = IndexedDataset::Open(Path("t"));
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT(dataset->CheckTokens(300, {}).message(),
              HasSubstr("document 3, position 1999999: token 300 is outside"));
  EXPECT_THAT(dataset->CheckTokens(301, {}).message(),
              HasSubstr("document 4, position 5: token 400 is outside"));
  EXPECT_TRUE(dataset->CheckTokens(401, {}).ok());
}

TEST_F(IndexedFiles, NegativeAndHugeTokensAreOutsideAnyVocabulary) {
  for (const auto& [code, num_bytes] : std::vector<std::pair<int, int>>{{2, 1}, {3, 2}, {4, 4}, {5, 8}}) {
    std::string data;
    PutLittleEndian(data, ~uint64_t{0}, num_bytes);
    IndexParts parts;
    parts.dtype = static_cast<uint8_t>(code);
    parts.lengths = {1};
    parts.pointers = {0};
    parts.documents = {0, 1};
    Write("t.bin", data);
    Write("t.idx", parts.Bytes());
    const auto dataset = IndexedDataset::Open(Path("t"));
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    int32_t token;
    EXPECT_THAT(dataset->Read(0, 0, 1, 1000, &token).message(), HasSubstr("token -1 is outside"));
    EXPECT_THAT(dataset->CheckTokens(1000, {}).message(), HasSubstr("token -1 is outside"));
  }
}

TEST_F(IndexedFiles, AMissingHalfIsNamed) {
  WriteIndexed("d", {{1, 2, 3}});
  std::filesystem::remove(Path("d.idx"));
  EXPECT_THAT(IndexedDataset::Open(Path("d")).status().message(),
              HasSubstr("no such data file: " + Path("d.idx")));
  WriteIndexed("e", {{1, 2, 3}});
  std::filesystem::remove(Path("e.bin"));
  EXPECT_THAT(IndexedDataset::Open(Path("e")).status().message(),
              HasSubstr("no such data file: " + Path("e.bin")));
}

}  // namespace
}  // namespace trainctl::data
