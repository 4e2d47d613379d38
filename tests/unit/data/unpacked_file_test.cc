// Packed files: what comes out of them, and what is said of damaged ones. The packed bytes were made with the
// programs gzip 1.12 and zstd 1.5.4.
#include "data/unpacked_file.h"

#include <gmock/gmock.h>
#include <zlib.h>

#include "absl/strings/escaping.h"
#include "base/status.h"
#include "data/document_store.h"
#include "data/prepare.h"
#include "tests/unit/data/data_test_util.h"
#include "tokenizer/tokenizer.h"

namespace trainctl::data {
namespace {

using testing::HasSubstr;

constexpr char kFirst[] = "{\"text\":\"one\"}\n{\"text\":\"two\"}\n";
constexpr char kSecond[] = "{\"text\":\"three\"}\n";

// gzip -9nc FIRST; gzip -1nc SECOND
const std::string& TwoMembers() {
  static const auto* const bytes = new std::string(absl::HexStringToBytes(
      "1f8b0800000000000203ab562a49ad2851b252cacf4b55aae5aa86714bcaf3815c00fb0e50cb1e0000001f8b080000000000"
      "0403ab562a49ad2851b2522ac9284a4d55aae50200e402830c11000000"));
  return *bytes;
}
constexpr size_t kFirstMemberBytes = 42;

// zstd -c FIRST; a skippable frame of 3 bytes; zstd -19 -c SECOND
const std::string& TwoFrames() {
  static const auto* const bytes = new std::string(absl::HexStringToBytes(
      "28b52ffd241edd0000a87b2274657874223a226f6e65227d0a74776f227d0a010052cc3a90e2dfee532a4d18030000006162"
      "6328b52ffd24118900007b2274657874223a227468726565227d0ab6b8a3c4"));
  return *bytes;
}
constexpr size_t kFirstFrameBytes = 40;
constexpr size_t kSkippableFrameBytes = 11;

absl::StatusOr<std::string> Unpack(const std::string& path) {
  absl::StatusOr<UnpackedFile> file = UnpackedFile::Open(path);
  if (!file.ok()) return file.status();
  std::string plain;
  while (true) {
    const auto piece = file->Next();
    if (!piece.ok()) return piece.status();
    if (piece->empty()) return plain;
    plain.append(piece->begin(), piece->end());
  }
}

std::string Gzip(const std::string& plain) {
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string packed(deflateBound(&stream, plain.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(plain.data()));
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

using Unpacked = DataTest;

TEST_F(Unpacked, AllMembersAndFramesAreRead) {
  const std::string both = std::string(kFirst) + kSecond;
  EXPECT_EQ(*Unpack(Write("a.jsonl.gz", TwoMembers())), both);
  EXPECT_EQ(*Unpack(Write("a.jsonl.zst", TwoFrames())), both);
  EXPECT_EQ(*Unpack(Write("skip.zst", TwoFrames().substr(kFirstFrameBytes))), kSecond);
  EXPECT_EQ(*Unpack(Write("plain.jsonl", both)), both);
  EXPECT_EQ(*Unpack(Write("empty.jsonl", "")), "");
  EXPECT_EQ(*Unpack(Write("padded.gz", TwoMembers() + std::string(700000, '\0'))), both);
}

TEST_F(Unpacked, BytesDecideAndNotTheName) {
  const std::string both = std::string(kFirst) + kSecond;
  EXPECT_EQ(*Unpack(Write("a.jsonl", TwoMembers())), both);
  EXPECT_EQ(*Unpack(Write("a.gz", TwoFrames())), both);
  for (const std::string& contents : {both, std::string()}) {
    const absl::Status status = Unpack(Write("b.jsonl.gz", contents)).status();
    EXPECT_EQ(ExitCodeFor(status), ExitCode::kBadData);
    EXPECT_THAT(
        status.message(),
        HasSubstr("b.jsonl.gz: byte 0: the file name indicates compression, but the file is neither gzip"));
  }
}

// Every cut is noticed but those between members, where nobody can know that more was to come.
TEST_F(Unpacked, ACutFileIsNamedWithThePlace) {
  for (const auto& [name, whole] :
       std::vector<std::pair<std::string, std::string>>{{"a.gz", TwoMembers()}, {"a.zst", TwoFrames()}}) {
    for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
      const auto plain = Unpack(Write(name, whole.substr(0, bytes)));
      const bool between =
          name == "a.gz" ? bytes == kFirstMemberBytes
                         : bytes == kFirstFrameBytes || bytes == kFirstFrameBytes + kSkippableFrameBytes;
      if (between) {
        EXPECT_EQ(*plain, kFirst) << name << " cut to " << bytes;
        continue;
      }
      ASSERT_FALSE(plain.ok()) << name << " cut to " << bytes;
      EXPECT_EQ(ExitCodeFor(plain.status()), ExitCode::kBadData);
      EXPECT_THAT(plain.status().message(), HasSubstr(Path(name) + ": byte "));
      if (bytes >= 4) {
        EXPECT_THAT(plain.status().message(), HasSubstr("the file is truncated"));
      }
    }
  }
  EXPECT_THAT(Unpack(Write("b.gz", TwoMembers().substr(0, 60))).status().message(),
              HasSubstr("b.gz: byte 60 of the gzip file, after "));
}

// A damaged byte is an error, or one of those that say nothing of the contents.
TEST_F(Unpacked, ADamagedByteIsNeverTakenForText) {
  const std::string both = std::string(kFirst) + kSecond;
  for (const auto& [name, whole] :
       std::vector<std::pair<std::string, std::string>>{{"a.gz", TwoMembers()}, {"a.zst", TwoFrames()}}) {
    int unharmed = 0;
    for (size_t at = 0; at < whole.size(); ++at) {
      for (const char flip : {'\x01', '\x80', '\xff'}) {
        std::string damaged = whole;
        damaged[at] = static_cast<char>(damaged[at] ^ flip);
        const auto plain = Unpack(Write(name, damaged));
        if (plain.ok()) {
          EXPECT_EQ(*plain, both) << name << " byte " << at;
          ++unharmed;
        } else {
          EXPECT_EQ(ExitCodeFor(plain.status()), ExitCode::kBadData) << plain.status();
          EXPECT_THAT(plain.status().message(), HasSubstr(Path(name) + ": byte "));
        }
      }
    }
    EXPECT_LT(unharmed, 50) << "times, extra flags and systems in headers; what a skippable frame holds";
  }
  EXPECT_THAT(Unpack(Write("c.gz", TwoMembers() + "more")).status().message(),
              HasSubstr("c.gz: byte 81 of the gzip file"));
}

TEST_F(Unpacked, WhatIsNotReadIsRefusedWithAWayOut) {
  struct Case {
    std::string bytes;
    const char* message;
  };
  for (const Case& c : std::vector<Case>{
           {"PAR1 and so on", "set kind = \"parquet\""},
           {std::string("\xfd\x37zXZ\0rest", 10),
            "compressed with xz, which is not supported; decompress it first (xz -d)"},
           {"BZh91AY&SYrest", "bzip2"},
           {"PK\x03\x04rest", "unzip"},
       }) {
    for (const char* name : {"a.jsonl", "a.txt"}) {
      const std::string path = Write(name, c.bytes);
      const absl::Status status = Unpack(path).status();
      EXPECT_EQ(ExitCodeFor(status), ExitCode::kUsage) << status;
      EXPECT_THAT(status.message(), HasSubstr(c.message));
      EXPECT_EQ(OpenDocuments(Source({path}), 256).status(), status);
    }
  }
  EXPECT_EQ(*Unpack(Write("b.txt", "BZhou and so on")), "BZhou and so on");
  // zstd --long=31 < FILE
  EXPECT_THAT(
      Unpack(Write("long.zst", absl::HexStringToBytes("28b52ffd04a8510000000000000000000000001a2620ad")))
          .status()
          .message(),
      HasSubstr("its window exceeds 128 MiB"));
}

TEST_F(Unpacked, AFileIsUnpackedInPieces) {
  constexpr size_t kPlain = size_t{48} << 20;
  const std::string path = Write("zeros.gz", Gzip(std::string(kPlain, '\0')));
  EXPECT_LT(std::filesystem::file_size(path), 60000u);
  auto file = UnpackedFile::Open(path);
  ASSERT_TRUE(file.ok());
  size_t total = 0;
  while (true) {
    const auto piece = file->Next();
    ASSERT_TRUE(piece.ok()) << piece.status();
    if (piece->empty()) break;
    ASSERT_LE(piece->size(), size_t{1} << 18);
    total += piece->size();
  }
  EXPECT_EQ(total, kPlain);
}

TEST_F(Unpacked, PackedJsonlTrainsLikePlain) {
  const std::string plain = Write("p.jsonl", std::string(kFirst) + kSecond);
  recipe::Recipe of_plain = MakeRecipe({Source({plain})}, 2, 5, 257);
  const auto expected = (*OpenTrainSource(of_plain))->Get(0, {0, 2});
  ASSERT_TRUE(expected.ok());
  for (const std::string& path : {Write("a.jsonl.gz", TwoMembers()), Write("a.JSONL.ZST", TwoFrames())}) {
    recipe::Recipe of_packed = MakeRecipe({Source({path})}, 2, 5, 257);
    const auto source = OpenTrainSource(of_packed);
    ASSERT_TRUE(source.ok()) << source.status();
    EXPECT_TRUE(*(*source)->Get(0, {0, 2}) == *expected);
  }
  EXPECT_THAT(OpenDocuments(Source({Write("bad.jsonl.gz", Gzip("{\"text\":\"x\"}\nrubbish\n"))}), 256)
                  .status()
                  .message(),
              HasSubstr("bad.jsonl.gz:2:1"));
}

TEST_F(Unpacked, PackedTextIsSentToBePrepared) {
  for (const auto& [name, bytes] : std::vector<std::pair<std::string, std::string>>{
           {"a.txt.gz", TwoMembers()}, {"a.txt", TwoMembers()}, {"a.txt.zst", TwoFrames()}}) {
    const std::string path = Write(name, bytes);
    const absl::Status status = OpenTrainSource(MakeRecipe({Source({path})}, 1, 4)).status();
    EXPECT_EQ(ExitCodeFor(status), ExitCode::kUsage) << status;
    EXPECT_THAT(status.message(), HasSubstr("trainctl data prepare " + path + " --out PREFIX"));
  }
}

// With a tokenizer a text is read as a whole, from its front.
TEST_F(Unpacked, WithATokenizerPackedTextTrainsLikePlain) {
  const auto tokenizer = tokenizer::Tokenizer::Load(WriteTokenizer("tokenizer.json"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto store = OpenDocuments(Source({Write("a.txt.gz", Gzip("ab a")), Write("b.txt", "ab a")}), 6,
                                   {.tokenizer = tokenizer->get()});
  ASSERT_TRUE(store.ok()) << store.status();
  std::vector<int32_t> tokens(5);
  std::vector<uint8_t> learn(5);
  for (const int64_t document : {0, 1}) {
    ASSERT_EQ((*store)->DocumentTokens(document), 5);
    ASSERT_TRUE((*store)->Read(document, 0, 5, tokens.data(), learn.data()).ok());
    EXPECT_EQ(tokens, (std::vector<int32_t>{4, 2, 3, 0, 5}));
  }
  const auto parquet =
      OpenDocuments(Source({Write("c.txt", "PAR1....")}), 6, {.tokenizer = tokenizer->get()});
  EXPECT_EQ(ExitCodeFor(parquet.status()), ExitCode::kUsage) << parquet.status();
}

TEST_F(Unpacked, PackedFilesArePrepared) {
  PrepareOptions options;
  options.prefix = Path("out/corpus");
  options.inputs = {Write("a.jsonl.gz", TwoMembers()), Write("b.txt.gz", Gzip("some text")),
                    Write("c.txt.gz", Gzip(""))};
  const auto dataset = Prepare(options);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ(dataset->documents, 4);
  EXPECT_EQ(dataset->tokens, 3 + 3 + 5 + 9);
  EXPECT_EQ(dataset->sources[0].file.size_bytes, static_cast<int64_t>(TwoMembers().size()));

  options.inputs = {Write("d.jsonl.gz", TwoMembers().substr(0, 60))};
  options.overwrite = true;
  EXPECT_EQ(ExitCodeFor(Prepare(options).status()), ExitCode::kBadData);
  options.inputs = {Write("e.json.gz", TwoMembers())};
  EXPECT_THAT(Prepare(options).status().message(), HasSubstr("kind = \"jsonl\""));
  options.kind = "jsonl";
  EXPECT_EQ(Prepare(options)->documents, 3);
}

}  // namespace
}  // namespace trainctl::data
