// Builds the value of a JSON file that others may have written. Unlike the library's ordinary parser, it
// rejects duplicate keys. It runs in linear time, whereas the library's callback parser scans the parent at
// the end of each child. Does not use exceptions. Include only in .cc files.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/json.h"

namespace trainctl {

// Parses `text` and sends what it contains to `receiver`. Returns false if `receiver` stopped it, which
// parse_error should do.
bool SendJsonEvents(absl::string_view text, nlohmann::json_sax<Json>& receiver);

// Receives the events of a text. `what` names `text` in errors. The status is a BadDataError if the
// text is not valid JSON, repeats a key of an object, or is nested more than `max_depth` levels deep.
class StrictJsonBuilder : public nlohmann::json_sax<Json> {
 public:
  StrictJsonBuilder(absl::string_view text, absl::string_view what, int max_depth)
      : text_(text), what_(what), max_depth_(max_depth) {}

  bool null() override;
  bool boolean(bool value) override;
  bool number_integer(number_integer_t value) override;
  bool number_unsigned(number_unsigned_t value) override;
  bool number_float(number_float_t value, const std::string& digits) override;
  bool string(std::string& value) override;
  bool binary(binary_t& value) override;
  bool start_object(size_t num_members) override;
  bool start_array(size_t num_elements) override;
  bool end_object() override;
  bool end_array() override;
  bool key(std::string& key) override;
  bool parse_error(size_t position, const std::string& token,
                   const nlohmann::detail::exception& error) override;

  Json Take();
  const absl::Status& status() const { return status_; }

 private:
  struct OpenValue {
    Json* value;
    std::string key;  // key of the next value
    absl::flat_hash_set<std::string> keys;
  };
  Json* Put(Json value);
  bool Open(Json value);
  bool Close();
  bool Fail(absl::string_view message);

  absl::string_view text_;
  absl::string_view what_;
  int max_depth_;
  Json root_;
  std::vector<OpenValue> open_;
  absl::Status status_;
};

}  // namespace trainctl
