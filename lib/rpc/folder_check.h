// Internal to lib/rpc: checks that a caller and a launcher mean the same run folder. A copy of a run folder
// contains the tokens and certificates of the original, so a caller in the copy could reach the original's
// launcher by mistake. Callers therefore state which folder they mean. Thread-safe.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/server_context.h>

#include <string>

#include "rendezvous/service.h"

namespace trainctl::rpc {

// Adds `id`, the caller's JobFolder::id, to the call. Does nothing if `id` is empty. The device number of a
// shared folder differs between the machines that mount it, so calls between machines (`same_machine` is
// false) compare only the inode.
void SayFolder(grpc::ClientContext& context, const std::string& id, bool same_machine);

// Returns ABORTED, with the launcher's folder in the message, if the caller means a folder other than `own`.
grpc::Status CheckFolder(const grpc::ServerContextBase& context, const rendezvous::JobFolder& own);

}  // namespace trainctl::rpc
