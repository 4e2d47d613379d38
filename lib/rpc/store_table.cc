#include "rpc/store_table.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "rpc/wire.h"

namespace trainctl::rpc {
namespace {

absl::Span<const uint8_t> Bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

void SetValue(v1::StoreReply* reply, const std::vector<uint8_t>& value) {
  reply->set_value(value.data(), value.size());
}

}  // namespace

StoreTable::StoreTable() : store_(std::make_unique<InMemoryKeyValueStore>()) {}

void StoreTable::StartGeneration(int64_t generation) {
  generation_ = generation;
  store_ = std::make_unique<InMemoryKeyValueStore>();
  stored_bytes_ = 0;
}

bool StoreTable::TryAnswer(const v1::StoreRequest& request, v1::StoreReply* reply, grpc::Status* status) {
  *status = Check(request);
  return !status->ok() || Answer(request, reply, status);
}

grpc::Status StoreTable::Check(const v1::StoreRequest& request) const {
  if (request.header().generation() != generation_) {
    return {grpc::StatusCode::FAILED_PRECONDITION,
            absl::StrCat("generation ", request.header().generation(), " is superseded by ", generation_)};
  }
  if (request.keys().empty() && request.operation() != v1::StoreRequest::NUM_KEYS &&
      request.operation() != v1::StoreRequest::CHECK && request.operation() != v1::StoreRequest::WAIT) {
    return {grpc::StatusCode::INVALID_ARGUMENT, "a key is needed"};
  }
  for (const std::string& key : request.keys()) {
    if (key.size() > kMaxKeyBytes) {
      return {grpc::StatusCode::INVALID_ARGUMENT,
              absl::StrCat("a key has ", key.size(), " bytes; at most ", kMaxKeyBytes, " are allowed")};
    }
  }
  if (stored_bytes_ + static_cast<int64_t>(request.value().size()) > kMaxStoreBytes) {
    return {grpc::StatusCode::RESOURCE_EXHAUSTED,
            absl::StrCat("the store of this generation has taken ", kMaxStoreBytes, " bytes")};
  }
  return grpc::Status::OK;
}

bool StoreTable::Answer(const v1::StoreRequest& request, v1::StoreReply* reply, grpc::Status* status) {
  const auto finish = [&](const absl::Status& result) {
    *status = ToGrpc(result);
    return true;
  };
  const std::vector<std::string> keys(request.keys().begin(), request.keys().end());
  switch (request.operation()) {
    case v1::StoreRequest::SET:
      stored_bytes_ += static_cast<int64_t>(request.value().size());
      return finish(store_->Set(keys[0], Bytes(request.value())));
    case v1::StoreRequest::GET: {
      const auto present = store_->Check(keys);
      if (!present.ok()) return finish(present.status());
      if (!*present) return false;
      const auto value = store_->Get(keys[0], absl::ZeroDuration());
      if (value.ok()) SetValue(reply, *value);
      return finish(value.status());
    }
    case v1::StoreRequest::COMPARE_SET: {
      stored_bytes_ += static_cast<int64_t>(request.value().size());
      const auto value = store_->CompareSet(keys[0], Bytes(request.expected()), Bytes(request.value()));
      if (value.ok()) SetValue(reply, *value);
      return finish(value.status());
    }
    case v1::StoreRequest::ADD: {
      const auto number = store_->Add(keys[0], request.delta());
      if (number.ok()) reply->set_number(*number);
      return finish(number.status());
    }
    case v1::StoreRequest::CHECK: {
      const auto present = store_->Check(keys);
      if (present.ok()) reply->set_flag(*present);
      return finish(present.status());
    }
    case v1::StoreRequest::WAIT: {
      const auto present = store_->Check(keys);
      if (present.ok() && !*present) return false;
      return finish(present.status());
    }
    case v1::StoreRequest::DELETE: {
      const auto deleted = store_->Delete(keys[0]);
      if (deleted.ok()) reply->set_flag(*deleted);
      return finish(deleted.status());
    }
    case v1::StoreRequest::NUM_KEYS: {
      const auto count = store_->NumKeys();
      if (count.ok()) reply->set_number(*count);
      return finish(count.status());
    }
    default:
      return finish(absl::UnimplementedError(
          absl::StrCat("store operation ", static_cast<int>(request.operation()), " is not known here")));
  }
}

}  // namespace trainctl::rpc
