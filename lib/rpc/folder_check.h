// A caller in a copy of a run folder can reach the original's launcher, because the copy contains its tokens
// and certificates. Callers therefore state which folder they mean. Internal to lib/rpc. Thread safe.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/server_context.h>

#include <string>

#include "rendezvous/service.h"

namespace trainctl::rpc {

// Adds `id`, the caller's JobFolder::id, to the call; does nothing if it is empty. Machines that mount the
// same folder see different device numbers, so calls between machines compare only the inode.
void SayFolder(grpc::ClientContext& context, const std::string& id, bool same_machine);

// ABORTED, with the folder that the launcher works on, if the caller means another folder than `own`.
grpc::Status CheckFolder(const grpc::ServerContextBase& context, const rendezvous::JobFolder& own);

}  // namespace trainctl::rpc
