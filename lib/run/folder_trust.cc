#include "run/folder_trust.h"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace trainctl::run {
namespace {

constexpr size_t kMaxEntryBytes = 64 << 10;  // of a user or a group, with its members

// "user 1000 (alice)"
std::string NameOfUser(uid_t user) {
  passwd entry;
  passwd* found = nullptr;
  std::string buffer(kMaxEntryBytes, '\0');
  const bool is_known =
      ::getpwuid_r(user, &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr;
  return absl::StrCat("user ", user, is_known ? absl::StrCat(" (", entry.pw_name, ")") : "");
}

// Whether only this user is in the group: it has the user's name and no other members. In a container,
// neither may have a name.
bool IsPrivateGroup(gid_t group) {
  std::string user_buffer(kMaxEntryBytes, '\0'), group_buffer(kMaxEntryBytes, '\0');
  passwd user;
  passwd* found_user = nullptr;
  struct group entry;
  struct group* found_group = nullptr;
  (void)::getpwuid_r(::geteuid(), &user, user_buffer.data(), user_buffer.size(), &found_user);
  (void)::getgrgid_r(group, &entry, group_buffer.data(), group_buffer.size(), &found_group);
  if (found_user == nullptr || found_group == nullptr) {
    return found_user == nullptr && found_group == nullptr && group == ::getegid();
  }
  const std::string name = user.pw_name;
  for (char** member = entry.gr_mem; *member != nullptr; ++member) {
    if (name != *member) return false;
  }
  return name == entry.gr_name;
}

// Owner and mode that a file gets if this process creates it in `folder` with mode 0600. Empty if the file
// cannot be created.
std::optional<struct stat> NewFileIn(const std::string& folder) {
  std::string path = folder + "/.trainctl-owner-XXXXXX";
  const int fd = ::mkostemp(path.data(), O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  struct stat info;
  const bool is_known = ::fstat(fd, &info) == 0;
  ::unlink(path.c_str());
  ::close(fd);
  return is_known ? std::optional<struct stat>(info) : std::nullopt;
}

// Describes who else owns the file or can write to it, such as "belongs to user 7 (ann)". Empty if no one
// does.
std::string WhoElse(const struct stat& info, const std::string& folder) {
  const bool is_owned = info.st_uid == ::geteuid() || info.st_uid == 0;
  const bool is_group = (info.st_mode & S_IWGRP) != 0 && !IsPrivateGroup(info.st_gid);
  const bool is_all = (info.st_mode & S_IWOTH) != 0;
  if (is_owned && !is_group && !is_all) return "";
  // Some file systems map all users to one or give every file the same mode, so owner and mode prove nothing.
  const std::optional<struct stat> own = NewFileIn(folder);
  if (!is_owned && (!own || own->st_uid != info.st_uid)) {
    return absl::StrCat("belongs to ", NameOfUser(info.st_uid));
  }
  const mode_t fixed = own ? own->st_mode : 0;
  if (is_all && (fixed & S_IWOTH) == 0) return "can be modified by every user";
  if (is_group && (fixed & S_IWGRP) == 0) return absl::StrCat("can be modified by group ", info.st_gid);
  return "";
}

absl::Status Check(const std::string& path, const std::string& folder) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0)
    return absl::OkStatus();  // the caller that needs the file reports why
  const std::string who = WhoElse(info, folder);
  if (who.empty()) return absl::OkStatus();
  return UsageError(
      absl::StrCat(path, " ", who, ", but you are ", NameOfUser(::geteuid()),
                   ". Anyone who can modify a run folder controls the commands that its launch executes. "
                   "Remove their access, copy the run, or add --trust-folder if you trust them"));
}

}  // namespace

absl::Status CheckFolderIsTrusted(const std::string& folder) {
  TRAINCTL_RETURN_IF_ERROR(Check(folder, folder));
  return Check(folder + "/recipe.json", folder);
}

}  // namespace trainctl::run
