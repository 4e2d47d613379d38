#include "data/file_stamps.h"

#include <sys/stat.h>

#include <cerrno>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"
#include "data/data_record.h"
#include "data/document_store.h"
#include "data/fingerprint.h"
#include "tokenizer/tokenizer.h"

namespace trainctl::data {

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
    if (errno == ENOENT || errno == ENOTDIR) return BadDataError(absl::StrCat(path, ": no such data file"));
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

absl::StatusOr<bool> FileStamps::HasRecordedBytes(const std::string& path) {
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
  // A few samples of a large file do not tell a touch from a rewrite.
  if (found == recorded_->end() || found->second.sampled) return false;
  TRAINCTL_ASSIGN_OR_RETURN(const FileFingerprint now, FingerprintFile(path));
  return now.size_bytes == found->second.size_bytes && now.xxh3 == found->second.xxh3;
}

absl::StatusOr<std::vector<std::string>> FileStamps::CheckUnchanged() {
  std::vector<std::string> touched;
  for (FileStamp& opened : stamps_) {
    TRAINCTL_ASSIGN_OR_RETURN(const FileStamp now, StampFile(opened.path));
    std::string what;
    if (now.size_bytes != opened.size_bytes) {
      what = absl::StrCat("it had ", opened.size_bytes, " bytes and has ", now.size_bytes, " now");
    } else if (now.device != opened.device || now.inode != opened.inode) {
      what = "another file was put in its place";
    } else if (now.modified_ns != opened.modified_ns) {
      what = "it was written to";
    } else {
      continue;
    }
    if (now.size_bytes == opened.size_bytes) {
      TRAINCTL_ASSIGN_OR_RETURN(const bool is_same, HasRecordedBytes(opened.path));
      if (is_same) {
        opened = now;
        touched.push_back(opened.path);
        continue;
      }
    }
    return BadDataError(
        absl::StrCat(opened.path, " has changed while the run read it: ", what,
                     ". Restore it and resume, which compares checksums; or launch a new run"));
  }
  return touched;
}

}  // namespace trainctl::data
