#include "rpc/job_authority.h"

#include <arpa/inet.h>
#include <openssl/asn1.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <time.h>

#include <ctime>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/names.h"
#include "base/status.h"
#include "rpc/job_secret.h"
#include "rpc/token.h"

namespace trainctl::rpc {
namespace {

constexpr char kScheme[] = "trainctl://";
constexpr char kOrganization[] = "trainctl job";
constexpr char kCertificateLabel[] = "CERTIFICATE";
constexpr char kRequestLabel[] = "CERTIFICATE REQUEST";
constexpr char kKeyLabel[] = "PRIVATE KEY";
// A public key of P-256 as everybody writes it: the curve by name, the point not compressed. OpenSSL reads
// others too; with one form only, equal keys are equal bytes.
constexpr size_t kPublicKeyBytes = 91;

template <auto kFree>
struct Freer {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
void FreeNames(GENERAL_NAMES* names) { GENERAL_NAMES_free(names); }
void FreeBytes(unsigned char* bytes) { OPENSSL_free(bytes); }
using Key = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Freer<X509_free>>;
using Request = std::unique_ptr<X509_REQ, Freer<X509_REQ_free>>;
using Bio = std::unique_ptr<BIO, Freer<BIO_free_all>>;
using Names = std::unique_ptr<GENERAL_NAMES, Freer<FreeNames>>;
using Extension = std::unique_ptr<X509_EXTENSION, Freer<X509_EXTENSION_free>>;
using OpenSslBytes = std::unique_ptr<unsigned char, Freer<FreeBytes>>;

// OpenSSL keeps its errors per thread. What is left of ours there, gRPC would take for an error of a
// connection.
class ErrorScope {
 public:
  ErrorScope() { ERR_set_mark(); }
  ~ErrorScope() { ERR_pop_to_mark(); }
  ErrorScope(const ErrorScope&) = delete;
  ErrorScope& operator=(const ErrorScope&) = delete;
};

absl::Status OpenSslFailed(absl::string_view what) {
  const char* const reason = ERR_reason_error_string(ERR_peek_last_error());
  return InternalError(
      absl::StrCat("OpenSSL cannot ", what, reason == nullptr ? "" : ": ", reason == nullptr ? "" : reason));
}

bool IsName(absl::string_view text, size_t max_bytes) {
  if (text.empty() || text.size() > max_bytes) return false;
  for (const char c : text) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (!letter && !(c >= '0' && c <= '9') && c != '.' && c != '_' && c != '-') return false;
  }
  return true;
}

absl::Status BadName(absl::string_view what, absl::string_view text, size_t max_bytes) {
  return UsageError(absl::StrCat(what, " ", QuotedName(text), " needs 1 to ", max_bytes,
                                 " letters, digits, '.', '_' or '-'"));
}

// Of a certificate: workers have none.
std::optional<Role> ParseRole(absl::string_view text) {
  for (const Role role : {Role::kBootstrap, Role::kAgent, Role::kAdmin, Role::kReader, Role::kCoordinator}) {
    if (text == RoleName(role)) return role;
  }
  return std::nullopt;
}

std::string IdentityUri(absl::string_view job_id, const Identity& identity) {
  return absl::StrCat(kScheme, job_id, "/", RoleName(identity.role), "/", identity.name);
}

// ---- PEM ----------------------------------------------------------------------------------------

// The bytes of a text that is one PEM block of that kind and no more: nothing before it, no headers (an
// encrypted one would make OpenSSL ask the terminal), nothing but white space after it.
absl::StatusOr<std::string> ReadPem(absl::string_view text, absl::string_view label) {
  if (text.size() > kMaxPemBytes) {
    return UsageError(absl::StrCat(text.size(), " bytes are more than ", kMaxPemBytes));
  }
  const absl::Status malformed = UsageError(absl::StrCat("not one PEM block 'BEGIN ", label, "'"));
  if (!absl::StartsWith(text, "-----BEGIN ")) return malformed;
  const Bio bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  if (bio == nullptr) return OpenSslFailed("read from memory");
  char* name = nullptr;
  char* header = nullptr;
  unsigned char* data = nullptr;
  long num_bytes = 0;
  if (PEM_read_bio(bio.get(), &name, &header, &data, &num_bytes) != 1) return malformed;
  const OpenSslBytes free_name(reinterpret_cast<unsigned char*>(name));
  const OpenSslBytes free_header(reinterpret_cast<unsigned char*>(header));
  const OpenSslBytes free_data(data);
  if (name != label || header[0] != '\0') return malformed;
  const absl::string_view rest = text.substr(text.size() - BIO_pending(bio.get()));
  if (!absl::StripAsciiWhitespace(rest).empty()) return malformed;
  return std::string(reinterpret_cast<const char*>(data), static_cast<size_t>(num_bytes));
}

// One object that takes up all of a PEM block; `decode` is OpenSSL's function for it (d2i_...).
template <typename Pointer, typename Decode>
absl::StatusOr<Pointer> ReadObject(absl::string_view text, absl::string_view label, Decode decode) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::string bytes, ReadPem(text, label));
  auto* at = reinterpret_cast<const unsigned char*>(bytes.data());
  const unsigned char* const end = at + bytes.size();
  Pointer object(decode(&at, static_cast<long>(bytes.size())));
  if (object == nullptr || at != end) return UsageError(absl::StrCat("the PEM block holds no ", label));
  return object;
}

absl::StatusOr<Certificate> ReadCertificate(absl::string_view text) {
  return ReadObject<Certificate>(text, kCertificateLabel, [](const unsigned char** at, long num_bytes) {
    return d2i_X509(nullptr, at, num_bytes);
  });
}

absl::StatusOr<Key> ReadKey(absl::string_view text) {
  return ReadObject<Key>(text, kKeyLabel, [](const unsigned char** at, long num_bytes) {
    return d2i_AutoPrivateKey(nullptr, at, num_bytes);
  });
}

template <typename Write>
absl::StatusOr<std::string> WritePem(absl::string_view what, Write write) {
  const Bio bio(BIO_new(BIO_s_mem()));
  if (bio == nullptr || write(bio.get()) != 1) return OpenSslFailed(absl::StrCat("write ", what));
  char* data = nullptr;
  const long num_bytes = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, static_cast<size_t>(num_bytes));
}

absl::StatusOr<std::string> CertificatePem(X509* certificate) {
  return WritePem("a certificate", [&](BIO* bio) { return PEM_write_bio_X509(bio, certificate); });
}

absl::StatusOr<std::string> KeyPem(EVP_PKEY* key) {
  return WritePem("a key", [&](BIO* bio) {
    return PEM_write_bio_PKCS8PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr);
  });
}

// ---- keys and certificates ----------------------------------------------------------------------

absl::StatusOr<Key> MakeKey() {
  Key key(EVP_EC_gen("P-256"));
  if (key == nullptr) return OpenSslFailed("make a key");
  return key;
}

// Empty for a key of another kind, or one written in another way.
std::string PublicKeyBytes(EVP_PKEY* key) {
  char group[32] = "";
  if (EVP_PKEY_get_group_name(key, group, sizeof(group), nullptr) != 1) return "";
  if (absl::string_view(group) != "prime256v1") return "";
  unsigned char* data = nullptr;
  const int num_bytes = i2d_PUBKEY(key, &data);
  if (num_bytes < 0) return "";
  const OpenSslBytes free_data(data);
  if (num_bytes != static_cast<int>(kPublicKeyBytes)) return "";
  return std::string(reinterpret_cast<const char*>(data), kPublicKeyBytes);
}

bool AddName(GENERAL_NAMES* names, int kind, const std::string& text) {
  GENERAL_NAME* const name = GENERAL_NAME_new();
  if (name == nullptr) return false;
  ASN1_STRING* value = nullptr;
  if (kind == GEN_IPADD) {
    value = a2i_IPADDRESS(text.c_str());
  } else {
    value = ASN1_IA5STRING_new();
    if (value != nullptr && ASN1_STRING_set(value, text.data(), static_cast<int>(text.size())) != 1) {
      ASN1_STRING_free(value);
      value = nullptr;
    }
  }
  if (value == nullptr) {
    GENERAL_NAME_free(name);
    return false;
  }
  GENERAL_NAME_set0_value(name, kind, value);
  if (sk_GENERAL_NAME_push(names, name) > 0) return true;
  GENERAL_NAME_free(name);
  return false;
}

bool IsIpAddress(const std::string& text) {
  in6_addr address;
  return ::inet_pton(AF_INET, text.c_str(), &address) == 1 ||
         ::inet_pton(AF_INET6, text.c_str(), &address) == 1;
}

bool AddExtension(X509* certificate, X509* issuer, int nid, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const Extension extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value));
  return extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1;
}

bool SetSubject(X509* certificate, absl::string_view common_name) {
  X509_NAME* const subject = X509_get_subject_name(certificate);
  const std::string name(common_name);
  return X509_NAME_add_entry_by_txt(subject, "O", MBSTRING_ASC,
                                    reinterpret_cast<const unsigned char*>(kOrganization), -1, -1, 0) == 1 &&
         X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                                    reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0) == 1;
}

bool SetSerialAndTimes(X509* certificate, absl::Time now) {
  unsigned char serial[16];
  if (RAND_bytes(serial, sizeof(serial)) != 1) return false;
  serial[0] = (serial[0] & 0x7f) | 0x40;  // positive, and of one length
  const std::unique_ptr<BIGNUM, Freer<BN_free>> number(BN_bin2bn(serial, sizeof(serial), nullptr));
  return number != nullptr &&
         BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) != nullptr &&
         ASN1_TIME_set(X509_getm_notBefore(certificate), absl::ToTimeT(now - kCertificateBackdate)) !=
             nullptr &&
         ASN1_TIME_set(X509_getm_notAfter(certificate), absl::ToTimeT(now + kCertificateLifetime)) != nullptr;
}

absl::Time TimeOf(const ASN1_TIME* time) {
  std::tm parts = {};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return absl::InfinitePast();
  return absl::FromTimeT(::timegm(&parts));
}

absl::StatusOr<Certificate> MakeAuthorityCertificate(absl::string_view job_id, EVP_PKEY* key,
                                                     absl::Time now) {
  Certificate certificate(X509_new());
  X509* const c = certificate.get();
  if (c == nullptr || X509_set_version(c, X509_VERSION_3) != 1 || !SetSubject(c, job_id) ||
      X509_set_issuer_name(c, X509_get_subject_name(c)) != 1 || !SetSerialAndTimes(c, now) ||
      X509_set_pubkey(c, key) != 1 ||
      !AddExtension(c, c, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
      !AddExtension(c, c, NID_key_usage, "critical,keyCertSign") ||
      !AddExtension(c, c, NID_subject_key_identifier, "hash") || X509_sign(c, key, EVP_sha256()) == 0) {
    return OpenSslFailed("make the job's authority");
  }
  return certificate;
}

// The key of a request that its owner has signed.
absl::StatusOr<Key> KeyOfRequest(absl::string_view csr_pem) {
  auto request = ReadObject<Request>(csr_pem, kRequestLabel, [](const unsigned char** at, long num_bytes) {
    return d2i_X509_REQ(nullptr, at, num_bytes);
  });
  if (!request.ok()) return Annotate(request.status(), "the request for a certificate");
  Key key(X509_REQ_get_pubkey(request->get()));
  if (key == nullptr || PublicKeyBytes(key.get()).empty()) {
    return UsageError("the request for a certificate has a key that is not P-256");
  }
  if (X509_REQ_verify(request->get(), key.get()) != 1) {
    return UsageError("the request for a certificate is not signed by the key in it");
  }
  return key;
}

}  // namespace

class JobAuthority::Impl {
 public:
  Impl(absl::string_view job_id, const Clock& clock) : job_id_(job_id), clock_(clock) {}

  absl::Status Start() {
    const ErrorScope errors;
    TRAINCTL_ASSIGN_OR_RETURN(key_, MakeKey());
    TRAINCTL_ASSIGN_OR_RETURN(certificate_, MakeAuthorityCertificate(job_id_, key_.get(), clock_.Now()));
    TRAINCTL_ASSIGN_OR_RETURN(ca_pem_, CertificatePem(certificate_.get()));
    return absl::OkStatus();
  }

  absl::Status Start(const JobSecret& secret) {
    const ErrorScope errors;
    TRAINCTL_RETURN_IF_ERROR(CheckCredential(secret.authority));
    TRAINCTL_ASSIGN_OR_RETURN(key_, ReadKey(secret.authority.key_pem));
    TRAINCTL_ASSIGN_OR_RETURN(certificate_, ReadCertificate(secret.authority.ca_pem));
    ca_pem_ = secret.authority.ca_pem;
    secret_ = secret;
    return absl::OkStatus();
  }

  const std::string& job_id() const { return job_id_; }
  const std::string& ca_pem() const { return ca_pem_; }

  absl::StatusOr<Credential> Export() const {
    const ErrorScope errors;
    Credential own{.cert_pem = ca_pem_, .ca_pem = ca_pem_};
    TRAINCTL_ASSIGN_OR_RETURN(own.key_pem, KeyPem(key_.get()));
    return own;
  }

  absl::StatusOr<Credential> Issue(const Identity& identity, absl::Span<const std::string> addresses) {
    const ErrorScope errors;
    TRAINCTL_ASSIGN_OR_RETURN(const Key key, MakeKey());
    Credential credential;
    TRAINCTL_ASSIGN_OR_RETURN(credential.key_pem, KeyPem(key.get()));
    std::lock_guard lock(mutex_);
    TRAINCTL_ASSIGN_OR_RETURN(credential.cert_pem, Sign(identity, addresses, key.get()));
    credential.ca_pem = ca_pem_;
    return credential;
  }

  absl::StatusOr<std::string> MakeToken(absl::string_view node) {
    if (!IsName(node, kMaxIdentityNameBytes)) return BadName("the node", node, kMaxIdentityNameBytes);
    TRAINCTL_ASSIGN_OR_RETURN(std::string token, rpc::MakeToken());
    std::lock_guard lock(mutex_);
    tokens_[std::string(node)] = {token, "", ""};
    return token;
  }

  absl::StatusOr<std::string> Enroll(absl::string_view node, absl::string_view token,
                                     absl::string_view csr_pem) {
    const ErrorScope errors;
    std::lock_guard lock(mutex_);
    // First the token: who has none does not get to what reads its bytes.
    const auto it = tokens_.find(node);
    if (it == tokens_.end() || !SameToken(token, it->second.token)) {
      return absl::PermissionDeniedError(
          absl::StrCat("the token is not that of node ", QuotedName(node), " in this job"));
    }
    return Certify(it->second, "token", node, csr_pem);
  }

  absl::StatusOr<std::string> EnrollWithKey(absl::string_view node, absl::string_view nonce,
                                            absl::string_view proof, absl::string_view csr_pem) {
    const ErrorScope errors;
    std::lock_guard lock(mutex_);
    // Names and nonces have no line end, which keeps them apart in the proof.
    const bool is_proven = secret_ && IsName(node, kMaxIdentityNameBytes) && IsName(nonce, kMaxJobIdBytes) &&
                           SameToken(proof, EnrolmentProof(NodeKey(*secret_, node), node, nonce, csr_pem));
    if (!is_proven) {
      return absl::PermissionDeniedError(
          absl::StrCat("the proof is not made with the key of node ", QuotedName(node), " in this job"));
    }
    return Certify(proven_[{std::string(node), std::string(nonce)}], "nonce", node, csr_pem);
  }

 private:
  struct Enrolment {
    std::string token;       // empty: a nonce was used in its place
    std::string public_key;  // the one key that it serves; empty before its first use
    std::string cert_pem;
  };

  // Requires mutex_. `what` was shown and found to be right.
  absl::StatusOr<std::string> Certify(Enrolment& enrolment, absl::string_view what, absl::string_view node,
                                      absl::string_view csr_pem) {
    TRAINCTL_ASSIGN_OR_RETURN(const Key key, KeyOfRequest(csr_pem));
    std::string key_bytes = PublicKeyBytes(key.get());
    if (!enrolment.public_key.empty() && enrolment.public_key != key_bytes) {
      return absl::PermissionDeniedError(absl::StrCat(
          "the ", what, " of node ", node,
          " was used already, with another key: it serves one agent only, and somebody else may have "
          "read it"));
    }
    if (enrolment.public_key.empty()) {
      TRAINCTL_ASSIGN_OR_RETURN(enrolment.cert_pem, Sign({Role::kAgent, std::string(node)}, {}, key.get()));
      enrolment.public_key = std::move(key_bytes);
    }
    return enrolment.cert_pem;
  }

  // Requires mutex_.
  absl::StatusOr<std::string> Sign(const Identity& identity, absl::Span<const std::string> addresses,
                                   EVP_PKEY* key) const {
    const bool server = identity.role == Role::kCoordinator;
    TRAINCTL_CHECK(identity.role != Role::kWorker && (server || addresses.empty()));
    if (!IsName(identity.name, kMaxIdentityNameBytes)) {
      return BadName(RoleName(identity.role), identity.name, kMaxIdentityNameBytes);
    }
    const Names names(sk_GENERAL_NAME_new_null());
    bool ok = names != nullptr && AddName(names.get(), GEN_URI, IdentityUri(job_id_, identity));
    if (server) ok = ok && AddName(names.get(), GEN_DNS, kCoordinatorName);
    for (const std::string& address : addresses) {
      const bool ip = IsIpAddress(address);
      if (!ip && !IsName(address, kMaxIdentityNameBytes)) {
        return UsageError(absl::StrCat(QuotedName(address), " is neither an IP address nor a host name"));
      }
      ok = ok && AddName(names.get(), ip ? GEN_IPADD : GEN_DNS, address);
    }
    const Certificate certificate(X509_new());
    X509* const c = certificate.get();
    X509* const issuer = certificate_.get();
    if (!ok || c == nullptr || X509_set_version(c, X509_VERSION_3) != 1 ||
        !SetSubject(c, RoleName(identity.role)) ||
        X509_set_issuer_name(c, X509_get_subject_name(issuer)) != 1 || !SetSerialAndTimes(c, clock_.Now()) ||
        X509_set_pubkey(c, key) != 1 ||
        !AddExtension(c, issuer, NID_basic_constraints, "critical,CA:FALSE") ||
        !AddExtension(c, issuer, NID_key_usage, "critical,digitalSignature") ||
        !AddExtension(c, issuer, NID_ext_key_usage, server ? "serverAuth" : "clientAuth") ||
        !AddExtension(c, issuer, NID_authority_key_identifier, "keyid:always") ||
        X509_add1_ext_i2d(c, NID_subject_alt_name, names.get(), 0, 0) != 1 ||
        X509_sign(c, key_.get(), EVP_sha256()) == 0) {
      return OpenSslFailed("make a certificate");
    }
    return CertificatePem(c);
  }

  const std::string job_id_;
  const Clock& clock_;
  Key key_;
  Certificate certificate_;
  std::string ca_pem_;
  std::mutex mutex_;
  std::map<std::string, Enrolment, std::less<>> tokens_;  // by node
  std::optional<JobSecret> secret_;
  std::map<std::pair<std::string, std::string>, Enrolment> proven_;  // by node and nonce
};

JobAuthority::JobAuthority(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
JobAuthority::~JobAuthority() = default;

absl::StatusOr<std::unique_ptr<JobAuthority>> JobAuthority::Create(absl::string_view job_id,
                                                                   const Clock& clock) {
  if (!IsName(job_id, kMaxJobIdBytes)) return BadName("the job id", job_id, kMaxJobIdBytes);
  auto impl = std::make_unique<Impl>(job_id, clock);
  TRAINCTL_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<JobAuthority>(new JobAuthority(std::move(impl)));
}

absl::StatusOr<std::unique_ptr<JobAuthority>> JobAuthority::Open(absl::string_view job_id,
                                                                 const JobSecret& secret,
                                                                 const Clock& clock) {
  if (!IsName(job_id, kMaxJobIdBytes)) return BadName("the job id", job_id, kMaxJobIdBytes);
  auto impl = std::make_unique<Impl>(job_id, clock);
  TRAINCTL_RETURN_IF_ERROR(impl->Start(secret));
  return std::unique_ptr<JobAuthority>(new JobAuthority(std::move(impl)));
}

absl::StatusOr<Credential> JobAuthority::Export() const { return impl_->Export(); }

const std::string& JobAuthority::job_id() const { return impl_->job_id(); }
const std::string& JobAuthority::ca_pem() const { return impl_->ca_pem(); }

absl::StatusOr<Credential> JobAuthority::Issue(const Identity& identity,
                                               absl::Span<const std::string> addresses) const {
  return impl_->Issue(identity, addresses);
}

absl::StatusOr<std::string> JobAuthority::MakeToken(absl::string_view node) { return impl_->MakeToken(node); }

absl::StatusOr<std::string> JobAuthority::Enroll(absl::string_view node, absl::string_view token,
                                                 absl::string_view csr_pem) {
  return impl_->Enroll(node, token, csr_pem);
}

absl::StatusOr<std::string> JobAuthority::EnrollWithKey(absl::string_view node, absl::string_view nonce,
                                                        absl::string_view proof, absl::string_view csr_pem) {
  return impl_->EnrollWithKey(node, nonce, proof, csr_pem);
}

absl::StatusOr<KeyAndRequest> MakeKeyAndRequest() {
  const ErrorScope errors;
  TRAINCTL_ASSIGN_OR_RETURN(const Key key, MakeKey());
  const Request request(X509_REQ_new());
  if (request == nullptr || X509_REQ_set_version(request.get(), X509_REQ_VERSION_1) != 1 ||
      X509_REQ_set_pubkey(request.get(), key.get()) != 1 ||
      X509_REQ_sign(request.get(), key.get(), EVP_sha256()) == 0) {
    return OpenSslFailed("make a request for a certificate");
  }
  KeyAndRequest made;
  TRAINCTL_ASSIGN_OR_RETURN(made.key_pem, KeyPem(key.get()));
  TRAINCTL_ASSIGN_OR_RETURN(made.csr_pem, WritePem("a request for a certificate", [&](BIO* bio) {
                              return PEM_write_bio_X509_REQ(bio, request.get());
                            }));
  return made;
}

absl::StatusOr<Identity> ParsePeer(absl::Span<const std::string> uris, absl::string_view job_id) {
  if (uris.size() != 1) {
    return absl::PermissionDeniedError(absl::StrCat("the certificate has ", uris.size(), " URIs, not one"));
  }
  const absl::Status malformed = absl::PermissionDeniedError(
      absl::StrCat("the certificate's URI ", QuotedName(uris[0]), " names nobody of a job"));
  absl::string_view rest = uris[0];
  if (!absl::ConsumePrefix(&rest, kScheme)) return malformed;
  const std::vector<absl::string_view> parts = absl::StrSplit(rest, '/');
  if (parts.size() != 3 || !IsName(parts[0], kMaxJobIdBytes) || !IsName(parts[2], kMaxIdentityNameBytes)) {
    return malformed;
  }
  const std::optional<Role> role = ParseRole(parts[1]);
  if (!role) return malformed;
  if (parts[0] != job_id) {
    return absl::PermissionDeniedError(
        absl::StrCat("the certificate belongs to job ", QuotedName(parts[0]), ", this is ", job_id));
  }
  return Identity{*role, std::string(parts[2])};
}

absl::Status CheckCredential(const Credential& credential) {
  const ErrorScope errors;
  const auto authority = ReadCertificate(credential.ca_pem);
  if (!authority.ok()) return Annotate(authority.status(), "the authority's certificate");
  const auto certificate = ReadCertificate(credential.cert_pem);
  if (!certificate.ok()) return Annotate(certificate.status(), "the certificate");
  const auto key = ReadKey(credential.key_pem);
  if (!key.ok()) return Annotate(key.status(), "the certificate's key");
  if (X509_check_private_key(certificate->get(), key->get()) != 1) {
    return UsageError("the certificate is for another key");
  }
  EVP_PKEY* const signer = X509_get0_pubkey(authority->get());
  if (signer == nullptr || X509_verify(certificate->get(), signer) != 1) {
    return UsageError("the certificate was not signed by the job's authority");
  }
  return absl::OkStatus();
}

absl::Status CheckDates(const Credential& credential, absl::Time now) {
  const ErrorScope errors;
  for (const std::string& pem : {credential.ca_pem, credential.cert_pem}) {
    TRAINCTL_ASSIGN_OR_RETURN(const Certificate certificate, ReadCertificate(pem));
    const absl::Time begin = TimeOf(X509_get0_notBefore(certificate.get()));
    const absl::Time end = TimeOf(X509_get0_notAfter(certificate.get()));
    if (begin <= now && now <= end) continue;
    const auto format = [](absl::Time time) {
      return absl::FormatTime("%Y-%m-%d %H:%M", time, absl::UTCTimeZone());
    };
    const std::string when =
        absl::StrCat("the job's certificate is valid from ", format(begin), " to ", format(end),
                     " UTC, but this machine's clock shows ", format(now), ": ");
    if (now > end) {
      return UsageError(
          absl::StrCat(when,
                       "the certificate has expired, or the clock is wrong. If it has expired, stop "
                       "and resume the run; in Kubernetes, print the manifest again"));
    }
    return UsageError(absl::StrCat(when, "set the clocks; those of a job's machines may differ by ",
                                   absl::FormatDuration(kCertificateBackdate)));
  }
  return absl::OkStatus();
}

}  // namespace trainctl::rpc
