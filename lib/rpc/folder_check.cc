#include "rpc/folder_check.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace trainctl::rpc {
namespace {

constexpr char kFolderKey[] = "trainctl-folder";

// ":131" of "2049:131".
std::string InodeOf(const std::string& id) { return id.substr(std::min(id.find(':'), id.size())); }

}  // namespace

void SayFolder(grpc::ClientContext& context, const std::string& id, bool same_machine) {
  if (!id.empty()) context.AddMetadata(kFolderKey, same_machine ? id : InodeOf(id));
}

grpc::Status CheckFolder(const grpc::ServerContextBase& context, const rendezvous::JobFolder& own) {
  const auto said = context.client_metadata().find(kFolderKey);
  if (said == context.client_metadata().end() || own.id.empty()) return grpc::Status::OK;
  const std::string id(said->second.data(), said->second.size());
  if (id == own.id || id == InodeOf(own.id)) return grpc::Status::OK;
  return {grpc::StatusCode::ABORTED, absl::StrCat("this folder is a copy; the run continues in ", own.path)};
}

}  // namespace trainctl::rpc
