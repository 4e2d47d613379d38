#include "checkpoint/model_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/files.h"
#include "base/json.h"
#include "base/lfs_pointer.h"
#include "base/life_signs.h"
#include "base/status.h"
#include "checkpoint/block_writer.h"
#include "checkpoint/file_ops.h"
#include "checkpoint/safetensors.h"

namespace trainctl::checkpoint {
namespace {

constexpr char kSingleName[] = "model.safetensors";
constexpr char kIndexName[] = "model.safetensors.index.json";
constexpr int64_t kMaxIndexBytes = 100'000'000;

class ReadFd {
 public:
  // A FIFO must not hold up its reader.
  explicit ReadFd(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ReadFd(const ReadFd&) = delete;
  ~ReadFd() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

absl::Status ReadAt(int fd, const std::string& path, int64_t offset, absl::Span<std::byte> bytes) {
  size_t got = 0;
  while (got < bytes.size()) {
    const ssize_t count =
        ::pread(fd, bytes.data() + got, bytes.size() - got, offset + static_cast<int64_t>(got));
    Beat();
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoError("read", path, errno);
    if (count == 0) {
      return BadDataError(absl::StrCat(path, ": truncated: it has no bytes from ", offset + got, " on"));
    }
    got += static_cast<size_t>(count);
  }
  return absl::OkStatus();
}

absl::StatusOr<SafetensorsHeader> ReadHeader(const std::string& path) {
  const ReadFd fd(path);
  if (fd.get() < 0) return ErrnoError("open", path, errno);
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) return ErrnoError("stat", path, errno);
  if (!S_ISREG(info.st_mode)) return BadDataError(absl::StrCat(path, ": not a regular file"));
  std::array<std::byte, kLfsPointerPrefixBytes> begin = {};
  const auto first = absl::MakeSpan(begin).first(std::min(begin.size(), static_cast<size_t>(info.st_size)));
  TRAINCTL_RETURN_IF_ERROR(ReadAt(fd.get(), path, 0, first));
  if (IsLfsPointer({reinterpret_cast<const char*>(first.data()), first.size()}, info.st_size)) {
    return LfsPointerError(path);
  }
  TRAINCTL_ASSIGN_OR_RETURN(const int64_t length, ParseSafetensorsLength(first, info.st_size, path));
  std::string json(static_cast<size_t>(length), '\0');
  const absl::Span<std::byte> bytes(reinterpret_cast<std::byte*>(json.data()), json.size());
  TRAINCTL_RETURN_IF_ERROR(ReadAt(fd.get(), path, 8, bytes));
  return ParseSafetensorsHeader(json, info.st_size, path);
}

// Returns the error for a folder without safetensors files. If the folder has weights in PyTorch's older
// format, the message suggests how to convert them.
absl::Status NoWeightsIn(const std::string& path) {
  const std::string none = absl::StrCat(path, ": contains neither ", kSingleName, " nor ", kIndexName);
  for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    if (!PathExists(absl::StrCat(path, "/", name))) continue;
    return EnvironmentError(absl::StrCat(
        none, ", but ", name,
        ", which trainctl cannot read. If the model's repository has safetensors files, download them. "
        "Otherwise convert the weights in Python: model = "
        "transformers.AutoModelForCausalLM.from_pretrained(FOLDER, torch_dtype=\"auto\"); "
        "model.save_pretrained(FOLDER)"));
  }
  return EnvironmentError(none);
}

bool IsPlainFileName(absl::string_view name) {
  return !name.empty() && name[0] != '.' && name.size() <= 255 && name.find('/') == absl::string_view::npos &&
         name.find('\0') == absl::string_view::npos;
}

}  // namespace

absl::StatusOr<absl::flat_hash_map<std::string, std::string>> ParseModelIndex(absl::string_view text,
                                                                              absl::string_view what) {
  TRAINCTL_ASSIGN_OR_RETURN(const Json json, ParseJson(text, what, 16));
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) {
    return BadDataError(absl::StrCat(what, ": contains no weight_map"));
  }
  absl::flat_hash_map<std::string, std::string> file_of;
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    if (!file.is_string()) {
      return BadDataError(absl::StrCat(what, ": the shard of '", tensor, "' is not a string"));
    }
    const std::string& name = file.template get_ref<const std::string&>();
    if (!IsPlainFileName(name)) {
      return BadDataError(
          absl::StrCat(what, ": shard name '", name, "' of tensor '", tensor, "' is not a plain file name"));
    }
    file_of.emplace(tensor, name);
  }
  return file_of;
}

absl::Status ModelFolder::AddFile(const std::string& name,
                                  const absl::flat_hash_map<std::string, std::string>* file_of) {
  TRAINCTL_ASSIGN_OR_RETURN(SafetensorsHeader header, ReadHeader(absl::StrCat(path_, "/", name)));
  const int file = static_cast<int>(files_.size());
  files_.push_back(name);
  for (TensorInfo& tensor : header.tensors) {
    if (file_of != nullptr) {
      const auto found = file_of->find(tensor.name);
      if (found == file_of->end() || found->second != name) continue;
    }
    tensors_.push_back({std::move(tensor.name), tensor.dtype, std::move(tensor.shape), file,
                        header.data_offset + tensor.offset_bytes, tensor.num_bytes});
  }
  return absl::OkStatus();
}

absl::StatusOr<ModelFolder> ModelFolder::Open(const std::string& path) {
  ModelFolder folder;
  folder.path_ = path;
  const std::string index_path = absl::StrCat(path, "/", kIndexName);
  if (PathExists(absl::StrCat(path, "/", kSingleName))) {
    TRAINCTL_RETURN_IF_ERROR(folder.AddFile(kSingleName, nullptr));
  } else if (PathExists(index_path)) {
    TRAINCTL_ASSIGN_OR_RETURN(const std::string text, ReadFile(index_path, kMaxIndexBytes));
    TRAINCTL_ASSIGN_OR_RETURN(const auto file_of, ParseModelIndex(text, index_path));
    std::set<std::string> names;
    for (const auto& [tensor, file] : file_of) names.insert(file);
    for (const std::string& name : names) {
      if (!PathExists(absl::StrCat(path, "/", name))) {
        return EnvironmentError(absl::StrCat(path, ": shard ", name, ", which is listed in ", kIndexName,
                                             ", is missing; download it"));
      }
      TRAINCTL_RETURN_IF_ERROR(folder.AddFile(name, &file_of));
    }
    if (folder.tensors_.size() != file_of.size()) {
      for (const ModelTensor& tensor : folder.tensors_) folder.index_of_.emplace(tensor.name, 0);
      for (const auto& [tensor, file] : file_of) {
        if (folder.index_of_.contains(tensor)) continue;
        return BadDataError(absl::StrCat(path, ": ", kIndexName, " says that tensor '", tensor, "' is in ",
                                         file, ", but it is not"));
      }
    }
  } else {
    return NoWeightsIn(path);
  }
  std::sort(folder.tensors_.begin(), folder.tensors_.end(),
            [](const ModelTensor& a, const ModelTensor& b) { return a.name < b.name; });
  for (size_t i = 0; i < folder.tensors_.size(); ++i) folder.index_of_[folder.tensors_[i].name] = i;
  return folder;
}

const ModelTensor* ModelFolder::Find(const std::string& name) const {
  const auto found = index_of_.find(name);
  return found == index_of_.end() ? nullptr : &tensors_[found->second];
}

absl::Status ModelFolder::Read(const ModelTensor& tensor, int64_t begin_bytes,
                               absl::Span<std::byte> bytes) const {
  const int64_t num_bytes = static_cast<int64_t>(bytes.size());
  return ReadPieces(tensor, begin_bytes, num_bytes, num_bytes, bytes);
}

absl::Status ModelFolder::ReadPieces(const ModelTensor& tensor, int64_t begin_bytes, int64_t piece_bytes,
                                     int64_t stride_bytes, absl::Span<std::byte> bytes) const {
  if (bytes.empty()) return absl::OkStatus();
  if (piece_bytes == stride_bytes) piece_bytes = static_cast<int64_t>(bytes.size());
  TRAINCTL_CHECK(piece_bytes > 0 && static_cast<int64_t>(bytes.size()) % piece_bytes == 0);
  const int64_t num_pieces = static_cast<int64_t>(bytes.size()) / piece_bytes;
  const int64_t extent = (num_pieces - 1) * stride_bytes + piece_bytes;
  if (begin_bytes < 0 || extent > tensor.num_bytes || begin_bytes > tensor.num_bytes - extent) {
    return InternalError(absl::StrCat(path_, ": bytes ", begin_bytes, " to ", begin_bytes + extent,
                                      " of tensor '", tensor.name, "' were requested, but it has ",
                                      tensor.num_bytes));
  }
  const std::string path = absl::StrCat(path_, "/", files_[static_cast<size_t>(tensor.file)]);
  const ReadFd fd(path);
  if (fd.get() < 0) return ErrnoError("open", path, errno);
  absl::Status status;
  for (int64_t piece = 0; piece < num_pieces && status.ok(); ++piece) {
    status =
        ReadAt(fd.get(), path, tensor.offset_bytes + begin_bytes + piece * stride_bytes,
               bytes.subspan(static_cast<size_t>(piece * piece_bytes), static_cast<size_t>(piece_bytes)));
  }
  return Annotate(status, absl::StrCat("cannot read tensor '", tensor.name, "'"));
}

namespace {

// Positions of the tensors of each shard.
absl::StatusOr<std::vector<std::vector<size_t>>> FillShards(absl::Span<const ModelTensorSpec> tensors,
                                                            int64_t max_shard_bytes) {
  std::vector<std::vector<size_t>> shards(1);
  int64_t shard_bytes = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const absl::StatusOr<int64_t> num_bytes = TensorBytes(tensors[i].dtype, tensors[i].shape);
    if (!num_bytes.ok()) return Annotate(num_bytes.status(), absl::StrCat("tensor '", tensors[i].name, "'"));
    if (!shards.back().empty() && *num_bytes > max_shard_bytes - shard_bytes) {
      shards.emplace_back();
      shard_bytes = 0;
    }
    shards.back().push_back(i);
    if (__builtin_add_overflow(shard_bytes, *num_bytes, &shard_bytes)) shard_bytes = INT64_MAX;
  }
  return shards;
}

absl::Status WriteShard(const std::string& path, absl::Span<const ModelTensorSpec> tensors,
                        const std::vector<size_t>& members, const ModelTensorReader& read) {
  std::vector<std::pair<TensorInfo, size_t>> ordered;
  for (const size_t i : members) {
    ordered.emplace_back(TensorInfo{tensors[i].name, tensors[i].dtype, tensors[i].shape}, i);
  }
  std::sort(ordered.begin(), ordered.end(),
            [](const auto& a, const auto& b) { return SafetensorsOrder(a.first, b.first); });
  std::vector<TensorInfo> infos;
  for (const auto& [info, position] : ordered) infos.push_back(info);
  TRAINCTL_ASSIGN_OR_RETURN(const std::string header, FormatSafetensorsHeader({{"format", "pt"}}, infos));
  TRAINCTL_ASSIGN_OR_RETURN(BlockWriter out, BlockWriter::Create(RealFileOps(), path));
  TRAINCTL_RETURN_IF_ERROR(out.Append(header));
  for (size_t i = 0; i < infos.size(); ++i) {
    const size_t width = static_cast<size_t>(DTypeBytes(infos[i].dtype));
    for (int64_t done = 0; done < infos[i].num_bytes;) {
      const absl::Span<std::byte> space = out.Space();
      const int64_t num_bytes =
          std::min<int64_t>(infos[i].num_bytes - done, static_cast<int64_t>(space.size() / width * width));
      const absl::Span<std::byte> bytes = space.first(static_cast<size_t>(num_bytes));
      TRAINCTL_RETURN_IF_ERROR(read(tensors[ordered[i].second], done, bytes));
      TRAINCTL_RETURN_IF_ERROR(out.Advance(bytes.size()));
      done += num_bytes;
    }
  }
  return out.Finish();
}

// Removes what was written under temporary names unless told that all went well.
class Cleanup {
 public:
  ~Cleanup() {
    for (const std::string& path : paths_) ::unlink(path.c_str());
  }
  void Add(std::string path) { paths_.push_back(std::move(path)); }
  void Forget() { paths_.clear(); }

 private:
  std::vector<std::string> paths_;
};

std::string FormatModelIndex(const std::map<std::string, std::string>& file_of, int64_t total_bytes) {
  // `file_of` is sorted, as in the files of transformers.
  const Json index = {{"metadata", {{"total_size", total_bytes}}}, {"weight_map", file_of}};
  return FormatJson(index, 2) + "\n";  // the names are UTF-8: headers with them have been written
}

absl::Status CheckHoldsNoWeights(const std::string& path) {
  for (const char* name : {kSingleName, kIndexName}) {
    if (!PathExists(absl::StrCat(path, "/", name))) continue;
    return UsageError(
        absl::StrCat(path, " already contains ", name, "; choose another folder, or remove the file"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteModelFolder(const std::string& path, absl::Span<const ModelTensorSpec> tensors,
                              const ModelTensorReader& read, int64_t max_shard_bytes) {
  if (max_shard_bytes < 1) {
    return UsageError(absl::StrCat("a shard of ", max_shard_bytes, " bytes is too small"));
  }
  std::set<std::string> names;
  for (const ModelTensorSpec& tensor : tensors) {
    if (names.insert(tensor.name).second) continue;
    return BadDataError(absl::StrCat("two tensors are named '", tensor.name, "'"));
  }
  TRAINCTL_ASSIGN_OR_RETURN(const auto shards, FillShards(tensors, max_shard_bytes));
  TRAINCTL_RETURN_IF_ERROR(MakeDirs(path));
  TRAINCTL_RETURN_IF_ERROR(CheckHoldsNoWeights(path));
  Cleanup cleanup;
  std::vector<std::pair<std::string, std::string>> renames;
  std::map<std::string, std::string> file_of;
  int64_t total_bytes = 0;
  for (size_t shard = 0; shard < shards.size(); ++shard) {
    const std::string name =
        shards.size() == 1 ? std::string(kSingleName)
                           : absl::StrFormat("model-%05d-of-%05d.safetensors", shard + 1, shards.size());
    const std::string temporary = absl::StrCat(path, "/.tmp-", name);
    ::unlink(temporary.c_str());
    TRAINCTL_RETURN_IF_ERROR(WriteShard(temporary, tensors, shards[shard], read));
    cleanup.Add(temporary);
    renames.emplace_back(temporary, absl::StrCat(path, "/", name));
    for (const size_t i : shards[shard]) {
      file_of[tensors[i].name] = name;
      total_bytes += *TensorBytes(tensors[i].dtype, tensors[i].shape);
    }
  }
  for (const auto& [from, to] : renames) {
    if (::rename(from.c_str(), to.c_str()) != 0) return ErrnoError("rename to", to, errno);
  }
  cleanup.Forget();
  TRAINCTL_RETURN_IF_ERROR(SyncDir(path));
  if (shards.size() == 1) return absl::OkStatus();
  return WriteFileAtomic(absl::StrCat(path, "/", kIndexName), FormatModelIndex(file_of, total_bytes));
}

}  // namespace trainctl::checkpoint
