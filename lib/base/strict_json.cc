#include "base/strict_json.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/lfs_pointer.h"
#include "base/status.h"

namespace trainctl {
namespace {

// Ignores the text after "last read", which is quoted from the document.
bool IsAboutUtf8(absl::string_view reason) {
  return absl::StrContains(reason.substr(0, reason.find("last read")), "UTF-8");
}

// Returns the offset at which the invalid character at `offset` begins, or `offset` itself if it cannot be
// determined.
size_t BadByte(absl::string_view text, size_t offset) {
  for (size_t begin = offset; begin > 0 && begin + 3 > offset;) {
    const auto byte = static_cast<uint8_t>(text[--begin]);
    if (byte < 0x80) break;
    const size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 0;
    if (length > offset - begin) return begin;
    if (length > 0) break;
  }
  return offset;
}

}  // namespace

bool SendJsonEvents(absl::string_view text, nlohmann::json_sax<Json>& receiver) {
  return Json::sax_parse(text.begin(), text.end(), &receiver);
}

bool StrictJsonBuilder::null() { return Put(nullptr) != nullptr; }
bool StrictJsonBuilder::boolean(bool value) { return Put(value) != nullptr; }
bool StrictJsonBuilder::number_integer(number_integer_t value) { return Put(value) != nullptr; }
bool StrictJsonBuilder::number_unsigned(number_unsigned_t value) { return Put(value) != nullptr; }
bool StrictJsonBuilder::number_float(number_float_t value, const std::string&) {
  return Put(value) != nullptr;
}
bool StrictJsonBuilder::string(std::string& value) { return Put(std::move(value)) != nullptr; }
bool StrictJsonBuilder::binary(binary_t&) { return Fail("binary data"); }
bool StrictJsonBuilder::start_object(size_t) { return Open(Json::object()); }
bool StrictJsonBuilder::start_array(size_t) { return Open(Json::array()); }
bool StrictJsonBuilder::end_object() { return Close(); }
bool StrictJsonBuilder::end_array() { return Close(); }

bool StrictJsonBuilder::key(std::string& key) {
  if (!open_.back().keys.insert(key).second) return Fail(absl::StrCat("key '", key, "' is given twice"));
  open_.back().key = std::move(key);
  return true;
}

bool StrictJsonBuilder::parse_error(size_t position, const std::string&,
                                    const nlohmann::detail::exception& error) {
  status_ = RefuseLfsPointer(text_, what_);
  if (!status_.ok()) return false;
  constexpr int kNumberOverflow = 406;
  if (error.id == kNumberOverflow) return Fail("a number is out of range");
  size_t offset = std::min(text_.size(), position > 0 ? position - 1 : 0);
  const bool is_not_utf8 = IsAboutUtf8(error.what()) && offset < text_.size();
  if (is_not_utf8) offset = BadByte(text_, offset);
  const auto line = std::count(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(offset), '\n') + 1;
  const size_t line_start = offset == 0 ? 0 : text_.rfind('\n', offset - 1) + 1;
  status_ = BadDataError(absl::StrCat(what_, ":", line, ":", offset - line_start + 1, ": ",
                                      is_not_utf8
                                          ? absl::StrFormat("not valid UTF-8 (byte 0x%02X); convert the file",
                                                            static_cast<uint8_t>(text_[offset]))
                                          : "not valid JSON"));
  return false;
}

Json StrictJsonBuilder::Take() { return std::move(root_); }

Json* StrictJsonBuilder::Put(Json value) {
  if (open_.empty()) {
    root_ = std::move(value);
    return &root_;
  }
  OpenValue& top = open_.back();
  if (top.value->is_array()) {
    top.value->push_back(std::move(value));
    return &top.value->back();
  }
  // As a list of members: the key is new, and a map of this type would compare it with all others.
  std::vector<Json::object_t::value_type>& members = top.value->get_ref<Json::object_t&>();
  return &members.emplace_back(std::move(top.key), std::move(value)).second;
}

bool StrictJsonBuilder::Open(Json value) {
  if (static_cast<int>(open_.size()) >= max_depth_) {
    return Fail(absl::StrCat("nested deeper than ", max_depth_, " levels"));
  }
  Json* placed = Put(std::move(value));
  open_.push_back({placed, {}, {}});
  return true;
}

bool StrictJsonBuilder::Close() {
  open_.pop_back();
  return true;
}

bool StrictJsonBuilder::Fail(absl::string_view message) {
  status_ = BadDataError(absl::StrCat(what_, ": ", message));
  return false;
}

}  // namespace trainctl
