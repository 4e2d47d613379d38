// A caller from a copy of a run folder reaches the launcher of the original, for the copy holds its tokens
// and its certificates. Callers therefore say which folder they mean. Internal to lib/rpc. Thread safe.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/server_context.h>

#include <string>

#include "rendezvous/service.h"

namespace trainctl::rpc {

// `id`: JobFolder::id as the caller sees it; empty: it does not say. A folder that is mounted on several
// machines has another device's number on each: between machines only the inode is compared.
void SayFolder(grpc::ClientContext& context, const std::string& id, bool same_machine);

// ABORTED, with the folder that the launcher works on, if the caller means another folder than `own`.
grpc::Status CheckFolder(const grpc::ServerContextBase& context, const rendezvous::JobFolder& own);

}  // namespace trainctl::rpc
