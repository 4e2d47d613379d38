// A parser for JSON files that others may have written. Unlike the library's ordinary parser, it rejects
// duplicate keys. It runs in linear time, whereas the library's callback parser scans the parent at the end
// of each child. Does not use exceptions. Include only in .cc files.
#pragma once

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "base/lfs_pointer.h"
#include "base/status.h"

namespace trainctl {

template <typename JsonType>
class StrictJsonBuilder : public nlohmann::json_sax<JsonType> {
 public:
  using Base = nlohmann::json_sax<JsonType>;
  StrictJsonBuilder(absl::string_view text, absl::string_view what, int max_depth)
      : text_(text), what_(what), max_depth_(max_depth) {}

  bool null() override { return Put(nullptr) != nullptr; }
  bool boolean(bool value) override { return Put(value) != nullptr; }
  bool number_integer(typename Base::number_integer_t value) override { return Put(value) != nullptr; }
  bool number_unsigned(typename Base::number_unsigned_t value) override { return Put(value) != nullptr; }
  bool number_float(typename Base::number_float_t value, const std::string&) override {
    return Put(value) != nullptr;
  }
  bool string(std::string& value) override { return Put(std::move(value)) != nullptr; }
  bool binary(typename Base::binary_t&) override { return Fail("binary data"); }
  bool start_object(size_t) override { return Open(JsonType::object()); }
  bool start_array(size_t) override { return Open(JsonType::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(std::string& key) override {
    if (!open_.back().keys.insert(key).second) return Fail(absl::StrCat("key '", key, "' is given twice"));
    open_.back().key = std::move(key);
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    status_ = RefuseLfsPointer(text_, what_);
    if (!status_.ok()) return false;
    constexpr int kNumberOverflow = 406;
    if (error.id == kNumberOverflow) return Fail("a number is out of range");
    size_t offset = std::min(text_.size(), position > 0 ? position - 1 : 0);
    const bool is_not_utf8 = IsAboutUtf8(error.what()) && offset < text_.size();
    if (is_not_utf8) offset = BadByte(text_, offset);
    const auto line = std::count(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(offset), '\n') + 1;
    const size_t line_start = offset == 0 ? 0 : text_.rfind('\n', offset - 1) + 1;
    status_ = BadDataError(
        absl::StrCat(what_, ":", line, ":", offset - line_start + 1, ": ",
                     is_not_utf8 ? absl::StrFormat("not valid UTF-8 (byte 0x%02X); convert the file",
                                                   static_cast<uint8_t>(text_[offset]))
                                 : "not valid JSON"));
    return false;
  }

  // Ignores the text after "last read", which is quoted from the document.
  static bool IsAboutUtf8(absl::string_view reason) {
    return absl::StrContains(reason.substr(0, reason.find("last read")), "UTF-8");
  }

  // Returns the offset at which the invalid character at `offset` begins, or `offset` itself if it cannot be
  // determined.
  static size_t BadByte(absl::string_view text, size_t offset) {
    for (size_t begin = offset; begin > 0 && begin + 3 > offset;) {
      const auto byte = static_cast<uint8_t>(text[--begin]);
      if (byte < 0x80) break;
      const size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 0;
      if (length > offset - begin) return begin;
      if (length > 0) break;
    }
    return offset;
  }

  JsonType Take() { return std::move(root_); }
  const absl::Status& status() const { return status_; }

 private:
  struct OpenValue {
    JsonType* value;
    std::string key;  // key of the next value
    absl::flat_hash_set<std::string> keys;
  };
  template <typename Value>
  JsonType* Put(Value&& value) {
    if (open_.empty()) {
      root_ = std::forward<Value>(value);
      return &root_;
    }
    OpenValue& top = open_.back();
    if (top.value->is_array()) {
      top.value->push_back(std::forward<Value>(value));
      return &top.value->back();
    }
    return &((*top.value)[top.key] = std::forward<Value>(value));
  }
  bool Open(JsonType value) {
    if (static_cast<int>(open_.size()) >= max_depth_) {
      return Fail(absl::StrCat("nested deeper than ", max_depth_, " levels"));
    }
    JsonType* placed = Put(std::move(value));
    open_.push_back({placed, {}, {}});
    return true;
  }
  bool Close() {
    open_.pop_back();
    return true;
  }
  bool Fail(absl::string_view message) {
    status_ = BadDataError(absl::StrCat(what_, ": ", message));
    return false;
  }

  absl::string_view text_;
  absl::string_view what_;
  int max_depth_;
  JsonType root_;
  std::vector<OpenValue> open_;
  absl::Status status_;
};

// Parses `text`, which `what` names in errors. JsonType is nlohmann::json, whose objects are sorted maps and
// suit large flat objects, or ordered_json. Returns BadDataError if the text is not valid JSON, repeats a
// key, or is nested more than `max_depth` levels deep.
template <typename JsonType>
absl::StatusOr<JsonType> ParseStrictJson(absl::string_view text, absl::string_view what, int max_depth = 64) {
  StrictJsonBuilder<JsonType> builder(text, what, max_depth);
  if (JsonType::sax_parse(text.begin(), text.end(), &builder)) return builder.Take();
  return builder.status();
}

}  // namespace trainctl
