#include "tokenizer/other_files.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/json.h"
#include "base/lfs_pointer.h"

namespace trainctl::tokenizer {
namespace {

constexpr char kUseBeside[] =
    "use the tokenizer.json next to it (the model's Hugging Face folder contains one)";

bool IsNumber(absl::string_view text) {
  return !text.empty() && text.size() <= 8 && std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
}

// The first lines are "<base64> <rank>", ranks one behind the other.
bool LooksLikeTiktoken(absl::string_view bytes) {
  constexpr int kLines = 3;
  int64_t last_rank = -1;
  for (int i = 0; i < kLines; ++i) {
    const absl::string_view line = absl::StripTrailingAsciiWhitespace(bytes.substr(0, bytes.find('\n')));
    const size_t space = line.find(' ');
    if (line.size() > 4096 || space == 0 || space == absl::string_view::npos) return false;
    std::string token;
    const absl::string_view rank = line.substr(space + 1);
    if (!IsNumber(rank) || !absl::Base64Unescape(line.substr(0, space), &token) || token.empty())
      return false;
    const int64_t number = std::stol(std::string(rank));
    if (last_rank >= 0 && number != last_rank + 1) return false;
    last_rank = number;
    if (bytes.find('\n') == absl::string_view::npos) return i > 0;
    bytes.remove_prefix(bytes.find('\n') + 1);
    if (bytes.empty()) return true;
  }
  return true;
}

// For a command line: the name where a shell takes it as it is.
std::string NameForCommand(absl::string_view what, absl::string_view otherwise) {
  const bool is_plain =
      !what.empty() && what.front() != '-' && std::all_of(what.begin(), what.end(), [](char c) {
        return absl::ascii_isalnum(c) || absl::StrContains("/._-+", c);
      });
  return std::string(is_plain ? what : otherwise);
}

std::string FolderForCommand(absl::string_view what) {
  const size_t slash = what.rfind('/');
  return NameForCommand(slash == absl::string_view::npos ? "." : what.substr(0, slash), "FOLDER");
}

std::string TellTiktoken(absl::string_view what) {
  return absl::StrCat(
      "is in tiktoken's format, which contains tokens and ranks but neither the pattern that splits text nor "
      "special tokens, so it does not define an encoding; ",
      kUseBeside,
      ", or create one with PyPI's transformers and tiktoken, here with Llama 3's pattern and first special "
      "tokens (for others, see docs/guide/tokenizers.md): python3 -c \"import sys; from "
      "transformers.convert_slow_tokenizer import TikTokenConverter as C; C(sys.argv[1], "
      "extra_special_tokens=['<|begin_of_text|>', '<|end_of_text|>']).converted().save('tokenizer.json')\" ",
      NameForCommand(what, "FILE"));
}

std::string TellTekken(absl::string_view what) {
  return absl::StrCat(
      "is in Mistral's tekken format, which is not supported; ", kUseBeside,
      ", or create one with PyPI's transformers and mistral-common, from a folder that contains this file as "
      "tekken.json: python3 -c \"import sys; from transformers import PreTrainedTokenizerFast as T; "
      "T.from_pretrained(sys.argv[1]).save_pretrained('converted')\" ",
      FolderForCommand(what));
}

// A vocabulary alone: tokens and ids, nothing else.
bool IsFlatVocab(const Json& root) {
  return root.size() > 1 &&
         std::all_of(root.begin(), root.end(), [](const Json& value) { return value.is_number_unsigned(); });
}

std::string FirstKeys(const Json& root) {
  std::vector<std::string> keys;
  for (const auto& item : root.items()) {
    if (keys.size() == 4) {
      keys.emplace_back("...");
      break;
    }
    keys.push_back(item.key().substr(0, 40));
  }
  return keys.empty() ? "nothing" : absl::StrJoin(keys, ", ");
}

}  // namespace

std::string DescribeOtherBytes(absl::string_view bytes, absl::string_view what) {
  const absl::string_view start = absl::StripLeadingAsciiWhitespace(bytes.substr(0, 256));
  if (bytes.empty())
    return "is empty, so it is neither a tokenizer.json nor a complete SentencePiece .model file";
  if (IsLfsPointer(bytes, static_cast<int64_t>(bytes.size()))) return std::string(kIsLfsPointer);
  if (absl::StartsWithIgnoreCase(start, "<!doctype") || absl::StartsWithIgnoreCase(start, "<html")) {
    return "is a web page; download the file itself";
  }
  if (absl::StartsWith(bytes, "GGUF")) return absl::StrCat("is a GGUF model; ", kUseBeside);
  if (absl::StartsWith(bytes, "PK\x03\x04"))
    return absl::StrCat("is a zip archive or a PyTorch file; ", kUseBeside);
  if (absl::StartsWith(bytes, "#version:")) {
    return absl::StrCat("is a merges.txt, which contains merges but no vocabulary or pattern; ", kUseBeside);
  }
  if (LooksLikeTiktoken(bytes)) return TellTiktoken(what);
  return "";
}

std::string DescribeOtherJson(const Json& root, absl::string_view what) {
  const std::string use = absl::StrCat("; ", kUseBeside);
  if (!root.is_object()) return absl::StrCat("is not a tokenizer.json: it is not an object", use);
  const auto has = [&](const char* key) { return root.contains(key); };
  if (has("vocab") && root["vocab"].is_array() && has("config")) return TellTekken(what);
  const auto is = [&](const char* name) {
    return absl::StrCat("is not a tokenizer.json but looks like a ", name, use);
  };
  if (has("tokenizer_class") || has("added_tokens_decoder")) return is("tokenizer_config.json");
  if (has("model_type") || has("architectures")) return is("model's config.json");
  if (has("chat_template")) return is("chat_template.json");
  if (IsFlatVocab(root)) return is("vocab.json (tokens and IDs, without merges or a pattern)");
  if (has("weight_map")) return is("model's weight index");
  if (has("transformers_version")) return is("generation_config.json");
  if (has("bos_token") || has("eos_token") || has("unk_token")) return is("special_tokens_map.json");
  return absl::StrCat("is not a tokenizer.json: it has no 'model' (but ", FirstKeys(root), ")", use);
}

std::string DescribeOthersIn(const std::vector<std::string>& names, absl::string_view folder) {
  if (std::find(names.begin(), names.end(), "snapshots") != names.end()) {
    return "; it is a Hugging Face cache folder, so specify one of the folders in its snapshots/";
  }
  std::vector<std::string> found;
  bool has_vocab = false;
  bool has_merges = false;
  for (const std::string& name : names) {
    has_vocab = has_vocab || name == "vocab.json";
    has_merges = has_merges || name == "merges.txt";
    const bool may_be_one = absl::EndsWith(name, ".model") || absl::StrContains(name, ".model.") ||
                            absl::EndsWith(name, ".tiktoken") || absl::StartsWith(name, "tekken") ||
                            (absl::StrContains(name, "tokenizer") && absl::EndsWith(name, ".json") &&
                             name != "tokenizer_config.json");
    if (may_be_one && found.size() < 8) found.push_back(name);
  }
  if (!found.empty())
    return absl::StrCat("; specify the file itself (the folder contains: ", absl::StrJoin(found, ", "), ")");
  if (!has_vocab || !has_merges) return "";
  return absl::StrCat(
      "; PyPI's transformers can create one from its vocab.json and merges.txt: python3 -c \"import sys; "
      "from transformers import AutoTokenizer as T; "
      "T.from_pretrained(sys.argv[1]).save_pretrained('converted')\" ",
      NameForCommand(folder, "FOLDER"));
}

}  // namespace trainctl::tokenizer
