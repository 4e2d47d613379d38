#include "data/text_preparation.h"

#include <algorithm>
#include <thread>

#include "base/status.h"
#include "data/data_file.h"
#include "data/document_text.h"
#include "data/fingerprint.h"
#include "data/jsonl_reader.h"
#include "data/unpacked_file.h"

namespace trainctl::data {

TextPreparation::TextPreparation(const PrepareOptions& options, const std::vector<SourceKind>& kinds,
                                 const tokenizer::Tokenizer* tokenizer, IndexedWriter& writer,
                                 PrepareState state, int64_t total_bytes)
    : options_(options),
      kinds_(kinds),
      writer_(writer),
      state_(std::move(state)),
      total_bytes_(total_bytes),
      taking_(state_.sources.empty() ? 0 : state_.sources.size() - 1),
      committed_tokens_(writer.ended_tokens()) {
  if (tokenizer == nullptr) return;
  const int num_cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  encoder_.emplace(*tokenizer, options.end_of_document ? tokenizer->end_of_document_id() : -1,
                   options.num_threads > 0 ? options.num_threads : num_cores,
                   [this](absl::Span<const int32_t> tokens) { return Take(tokens); });
}

absl::Status TextPreparation::Run() {
  size_t first = 0;
  if (!state_.sources.empty()) {
    first = state_.sources.size() - 1;
    texts_to_pass_ = state_.sources.back().texts_taken;
  }
  for (size_t i = 0; i < first; ++i) done_bytes_ += state_.sources[i].whole.size_bytes;
  last_commit_ = clock_.Monotonic();
  for (size_t i = first; i < options_.inputs.size(); ++i) TRAINCTL_RETURN_IF_ERROR(Add(i));
  return encoder_.has_value() ? NamingFile(encoder_->Finish()) : absl::OkStatus();
}

absl::Status TextPreparation::Commit() {
  TRAINCTL_RETURN_IF_ERROR(writer_.Commit());
  Reached("data_synced");
  PrepareState safe = state_;
  safe.sources.resize(std::min(safe.sources.size(), taking_ + 1));  // those behind are read ahead only
  TRAINCTL_RETURN_IF_ERROR(SaveState(options_.prefix, safe));
  writer_.Keep();
  Reached("committed");
  committed_tokens_ = writer_.ended_tokens();
  last_commit_ = clock_.Monotonic();
  return absl::OkStatus();
}

absl::Status TextPreparation::Add(size_t index) {
  const std::string& path = options_.inputs[index];
  if (index == state_.sources.size()) {
    SourceState source;
    source.path = path;
    source.kind = std::string(KindName(kinds_[index]));
    if (!options_.reads_standard_input()) {
      TRAINCTL_ASSIGN_OR_RETURN(source.found, QuickFingerprintFile(path));
    }
    state_.sources.push_back(std::move(source));
  }
  absl::StatusOr<FileFingerprint> whole =
      kinds_[index] == SourceKind::kText ? AddText(index, path) : AddRows(index, path);
  TRAINCTL_RETURN_IF_ERROR(whole.status());
  // The signal that stops this program may have ended the one that wrote the pipe.
  if (options_.reads_standard_input()) TRAINCTL_RETURN_IF_ERROR(CheckStop());
  done_bytes_ += whole->size_bytes;
  whole->path = path;  // not "standard input"
  state_.sources[index].whole = *std::move(whole);
  texts_to_pass_ = 0;
  return absl::OkStatus();
}

absl::StatusOr<UnpackedFile> TextPreparation::Open(const std::string& path) const {
  if (!options_.reads_standard_input()) return UnpackedFile::Open(path);
  TRAINCTL_ASSIGN_OR_RETURN(SequentialFile input, SequentialFile::OpenStandardInput(options_.stop));
  return UnpackedFile::Open(std::move(input));
}

absl::StatusOr<FileFingerprint> TextPreparation::AddText(size_t index, const std::string& path) {
  TRAINCTL_ASSIGN_OR_RETURN(UnpackedFile file, Open(path));
  const bool passes = texts_to_pass_ > 0;
  const int64_t tokens_before = writer_.num_tokens();
  std::string text;  // a tokenizer reads a text as a whole
  while (true) {
    TRAINCTL_ASSIGN_OR_RETURN(const absl::Span<const uint8_t> piece, file.Next());
    if (piece.empty()) break;
    TRAINCTL_RETURN_IF_ERROR(CheckStop());
    if (passes) continue;
    if (encoder_.has_value()) {
      TRAINCTL_RETURN_IF_ERROR(CheckTextBytes(path, text.size() + piece.size()));
      text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    } else {
      TRAINCTL_RETURN_IF_ERROR(writer_.AppendBytes(piece));
    }
    Report(file.file().bytes_read());
  }
  if (encoder_.has_value()) {
    if (!text.empty()) TRAINCTL_RETURN_IF_ERROR(Encode(index, std::move(text)));
  } else if (writer_.num_tokens() > tokens_before) {
    TRAINCTL_RETURN_IF_ERROR(EndBytes(index));
  }
  return FileFingerprint{path, file.file().bytes_read(), file.file().xxh3()};
}

absl::StatusOr<std::unique_ptr<RowReader>> TextPreparation::OpenRows(SourceKind kind,
                                                                     const std::string& path) const {
  RowOptions rows = {.text_field = options_.text_field,
                     .skip_bad_lines = options_.on_bad_line == "skip",
                     .skip_setting = absl::StrCat(kOnBadLine, " skip")};
  if (!options_.reads_standard_input()) return RowReader::Open(path, kind, std::move(rows));
  TRAINCTL_ASSIGN_OR_RETURN(UnpackedFile input, Open(path));
  return JsonlReader::Open(std::move(input), std::move(rows));
}

absl::StatusOr<FileFingerprint> TextPreparation::AddRows(size_t index, const std::string& path) {
  TRAINCTL_ASSIGN_OR_RETURN(const auto reader, OpenRows(kinds_[index], path));
  RowReader::Document document;
  while (true) {
    TRAINCTL_ASSIGN_OR_RETURN(const bool found, reader->Next(document));
    if (!found) break;
    TRAINCTL_RETURN_IF_ERROR(CheckStop());
    if (document.text.empty()) continue;
    if (texts_to_pass_ > 0) {
      --texts_to_pass_;
      continue;
    }
    if (encoder_.has_value()) {
      TRAINCTL_RETURN_IF_ERROR(Encode(index, std::move(document.text)));
    } else {
      TRAINCTL_RETURN_IF_ERROR(writer_.AppendBytes(
          absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(document.text.data()), document.text.size())));
      TRAINCTL_RETURN_IF_ERROR(EndBytes(index));
    }
    Report(reader->bytes_read());
  }
  state_.sources[index].left_out = reader->left_out();
  return reader->FingerprintOfAll();
}

absl::Status TextPreparation::Encode(size_t index, std::string text) {
  in_encoder_.push_back(index);
  return NamingFile(encoder_->Add(std::move(text)));
}

absl::Status TextPreparation::Take(absl::Span<const int32_t> tokens) {
  if (!tokens.empty()) TRAINCTL_RETURN_IF_ERROR(writer_.Append(tokens));
  const size_t index = in_encoder_.front();
  in_encoder_.pop_front();
  return EndText(index, !tokens.empty());
}

absl::Status TextPreparation::EndBytes(size_t index) {
  if (options_.end_of_document) TRAINCTL_RETURN_IF_ERROR(writer_.Append({kEndOfDocument}));
  return EndText(index, true);
}

absl::Status TextPreparation::EndText(size_t index, bool is_document) {
  SourceState& source = state_.sources[index];
  taking_ = index;
  ++source.texts_taken;
  if (is_document) {
    const int64_t tokens_before = writer_.ended_tokens();
    writer_.EndDocument();
    ++source.documents;
    source.tokens += writer_.ended_tokens() - tokens_before;
  }
  Reached("taken");
  const bool is_due = !options_.reads_standard_input() && IsDue();
  if (is_due && writer_.ended_tokens() > committed_tokens_) TRAINCTL_RETURN_IF_ERROR(Commit());
  return CheckStop();
}

bool TextPreparation::IsDue() const {
  return writer_.ended_tokens() - committed_tokens_ >= options_.commit_tokens ||
         clock_.Monotonic() - last_commit_ >= options_.commit_every;
}

absl::Status TextPreparation::CheckStop() const {
  if (options_.stop == nullptr || !*options_.stop) return absl::OkStatus();
  return absl::CancelledError("stopped");
}

absl::Status TextPreparation::NamingFile(const absl::Status& status) const {
  if (status.ok() || in_encoder_.empty() || absl::IsCancelled(status)) return status;
  return Annotate(status, options_.inputs[in_encoder_.front()]);
}

void TextPreparation::Report(int64_t bytes_read) const {
  if (options_.progress) options_.progress(done_bytes_ + bytes_read, total_bytes_);
}
void TextPreparation::Reached(const char* moment) const {
  if (options_.reached) options_.reached(moment);
}

}  // namespace trainctl::data
