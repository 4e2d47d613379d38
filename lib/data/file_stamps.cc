#include "data/file_stamps.h"

#include <sys/stat.h>

#include <cerrno>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/files.h"
#include "base/json.h"
#include "base/status.h"
#include "data/data_record.h"
#include "data/document_store.h"
#include "data/fingerprint.h"
#include "tokenizer/tokenizer.h"

namespace trainctl::data {
namespace {

// Every rank waits while a file is hashed.
constexpr int64_t kMostHashedBytes = int64_t{4} << 30;
constexpr int64_t kMaxReportBytes = int64_t{256} << 20;

// Returns the checksum of all bytes of PREFIX.bin, as stored in PREFIX.json by `data prepare`. Empty if there
// is none, or if it is that of a file of another size.
std::string PreparedChecksum(const std::string& path, int64_t size_bytes) {
  if (!absl::EndsWith(path, ".bin")) return "";
  const std::string report = IndexedPrefix(path) + ".json";
  const absl::StatusOr<std::string> text = ReadFile(report, kMaxReportBytes);
  if (!text.ok()) return "";
  const absl::StatusOr<Json> json = ParseJson(*text, report);
  if (!json.ok() || !json->is_object() || !json->contains("data")) return "";
  const Json& data = (*json)["data"];
  if (!data.is_object() || JsonInt(data, "bytes", report).value_or(-1) != size_bytes) return "";
  return JsonString(data, "xxh3", report).value_or("");
}

}  // namespace

absl::StatusOr<std::vector<std::string>> DataFiles(const recipe::DataConfig& data) {
  std::vector<std::string> files;
  std::set<std::string> seen;
  if (data.tokenizer != "byte") {
    TRAINCTL_ASSIGN_OR_RETURN(files.emplace_back(), tokenizer::Tokenizer::FindFile(data.tokenizer));
  }
  for (const auto* sources : {&data.train, &data.eval}) {
    for (const recipe::DataSource& source : *sources) {
      for (const std::string& file : source.files) {
        TRAINCTL_ASSIGN_OR_RETURN(const SourceKind kind, KindOfFile(source, file));
        std::vector<std::string> paths = {file};
        if (kind == SourceKind::kIndexed) {
          const std::string prefix = IndexedPrefix(file);
          paths = {prefix + ".bin", prefix + ".idx"};
        }
        for (std::string& path : paths) {
          if (seen.insert(path).second) files.push_back(std::move(path));
        }
      }
    }
  }
  return files;
}

absl::StatusOr<FileStamp> StampFile(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return BadDataError(absl::StrCat("no such data file: ", path));
    return ErrnoError("read", path, errno);
  }
  return FileStamp{path, info.st_dev, info.st_ino, info.st_size,
                   int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec};
}

absl::StatusOr<FileStamps> FileStamps::Take(const recipe::DataConfig& data, std::string record_path) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::vector<std::string> files, DataFiles(data));
  FileStamps stamps;
  stamps.record_path_ = std::move(record_path);
  for (const std::string& file : files) {
    TRAINCTL_ASSIGN_OR_RETURN(stamps.stamps_.emplace_back(), StampFile(file));
  }
  return stamps;
}

absl::StatusOr<FileStamps::Compared> FileStamps::CompareBytes(const std::string& path) {
  if (!recorded_.has_value()) {
    recorded_.emplace();
    if (!record_path_.empty()) {
      TRAINCTL_ASSIGN_OR_RETURN(const std::string text, ReadFile(record_path_));
      TRAINCTL_ASSIGN_OR_RETURN(const std::vector<FileFingerprint> files,
                                ParseDataRecord(text, record_path_));
      for (const FileFingerprint& file : files) recorded_->emplace(file.path, file);
    }
  }
  const auto found = recorded_->find(path);
  if (found == recorded_->end()) return Compared::kDifferent;
  const FileFingerprint& before = found->second;
  TRAINCTL_ASSIGN_OR_RETURN(const FileFingerprint now,
                            before.sampled ? QuickFingerprintFile(path) : FingerprintFile(path));
  if (now.size_bytes != before.size_bytes || now.sampled != before.sampled || now.xxh3 != before.xxh3) {
    return Compared::kDifferent;
  }
  if (!before.sampled) return Compared::kSame;
  const std::string prepared = PreparedChecksum(path, now.size_bytes);
  if (prepared.empty() || now.size_bytes > kMostHashedBytes) return Compared::kSameSamples;
  TRAINCTL_ASSIGN_OR_RETURN(const FileFingerprint whole, FingerprintFile(path));
  return absl::StrFormat("%016x", whole.xxh3) == prepared ? Compared::kSame : Compared::kDifferent;
}

absl::StatusOr<std::vector<TouchedFile>> FileStamps::CheckUnchanged() {
  std::vector<TouchedFile> touched;
  for (FileStamp& opened : stamps_) {
    TRAINCTL_ASSIGN_OR_RETURN(const FileStamp now, StampFile(opened.path));
    std::string what;
    if (now.size_bytes != opened.size_bytes) {
      what = absl::StrCat("it had ", opened.size_bytes, " bytes and now has ", now.size_bytes);
    } else if (now.device != opened.device || now.inode != opened.inode) {
      what = "it was replaced by another file";
    } else if (now.modified_ns != opened.modified_ns) {
      what = "it was modified";
    } else {
      continue;
    }
    if (now.size_bytes == opened.size_bytes) {
      TRAINCTL_ASSIGN_OR_RETURN(const Compared compared, CompareBytes(opened.path));
      if (compared != Compared::kDifferent) {
        opened = now;
        touched.push_back({.path = opened.path, .sampled = compared == Compared::kSameSamples});
        continue;
      }
    }
    return BadDataError(
        absl::StrCat(opened.path, " changed while the run was reading it: ", what,
                     ". Restore it and resume (checksums are compared), or launch a new run"));
  }
  return touched;
}

}  // namespace trainctl::data
